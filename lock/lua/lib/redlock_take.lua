-- SPDX-License-Identifier: Apache-2.0
-- redlock_take: takes a Redlock on one server if no other client holds it there
-- KEYS 1 lock, 2 fence counter
-- ARGV 1 token, 2 ttl_ms, 3 largest fence that the caller has seen,
--      4 lifetime of the fence counter in ms,
--      5 TTL in ms that a lock without TTL gets, '0': none
-- Result: the fence as a string; or, if another client holds the lock, the ms until it expires,
--      -1 if it has no TTL
-- (Redlock's scripts are short and use nothing from lock/lua/parts, because each new connection
-- loads them.)
local lock, fence_key, token = KEYS[1], KEYS[2], ARGV[1]
if not redis.call('SET', lock, token, 'NX', 'PX', ARGV[2]) then
    if redis.call('GET', lock) ~= token then
        local left = redis.call('PTTL', lock)
        if left == -1 and ARGV[5] ~= '0' then redis.call('PEXPIRE', lock, ARGV[5]) end
        return left
    end
    -- the caller already holds the lock: this call was sent again because its answer was lost
    redis.call('PEXPIRE', lock, ARGV[2])
end
local time = redis.call('TIME')
local last = math.max(tonumber(redis.call('GET', fence_key)) or 0, tonumber(ARGV[3]))
local fence = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
redis.call('SET', fence_key, fence, 'PX', ARGV[4])
return fence
