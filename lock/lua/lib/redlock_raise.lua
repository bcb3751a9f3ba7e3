-- SPDX-License-Identifier: Apache-2.0
-- redlock_raise: on a server that granted the lock, raises the fence counter to the largest fence
-- that any server granted
-- KEYS 1 lock, 2 fence counter
-- ARGV 1 token, 2 fence, 3 lifetime of the fence counter in ms
-- Result: 1, or 0 if the lock does not have the caller's token
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
