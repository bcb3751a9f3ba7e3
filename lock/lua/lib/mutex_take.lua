-- SPDX-License-Identifier: Apache-2.0
-- mutex_take: takes a lock if no other client holds it
-- KEYS 1 lock, 2 fence counter, 3 zset of waiting clients, or the name of the lock if clients are
--      not notified of releases
-- ARGV 1 token, 2 ttl_ms, 3 largest fence that the caller has seen,
--      4 lifetime of the fence counter in ms, '0': unlimited,
--      5 '1' if the value of the lock is the token alone, without a fence,
--      6 client to notify of the release, '': none,
--      7 '1' if other threads of that client still wait after this call has taken the lock,
--      8 TTL in ms that a lock without TTL gets, '0': none
-- Result: the fence as a string; or, if another client holds the lock, the ms until it expires,
--      -1 if it has no TTL
-- (The usual case comes first and uses nothing from lock/lua/parts, because defining the functions
-- of the parts costs each call a microsecond.)
local call = redis.call
local lock, fence_key, wait = KEYS[1], KEYS[2], KEYS[3]
local token, ttl, seen, keep_ms, plain, client, more, give = ARGV[1], ARGV[2], ARGV[3], ARGV[4],
    ARGV[5] == '1', ARGV[6], ARGV[7] == '1', ARGV[8]
local time = call('TIME')
local fence = string.format('%.0f',
    math.max((tonumber(call('GET', fence_key)) or 0) + 1, time[1] * 1000000 + time[2], seen + 1))
local taken = call('SET', lock, plain and token or token .. ':' .. fence, 'NX', 'PX', ttl)
if taken and client == '' and keep_ms ~= '0' then
    call('SET', fence_key, fence, 'PX', keep_ms)
    return fence
end
-- @fences
if taken then save_fence(fence_key, fence, keep_ms) end
-- @waiting
if not taken then
    local held = call('GET', lock)
    if plain and held == token then
        save_fence(fence_key, fence, keep_ms)
    elseif not plain and held and sub(held, 1, #token + 1) == token .. ':' then
        fence = sub(held, #token + 2)
    else
        local left = call('PTTL', lock)
        if left == -1 and give ~= '0' then call('PEXPIRE', lock, give) end
        start_waiting(wait, client)
        return left
    end
    -- the caller already holds the lock: this call was sent again because its answer was lost
    call('PEXPIRE', lock, ttl)
end
stop_waiting(wait, client, more)
return fence
