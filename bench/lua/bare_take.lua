-- SPDX-License-Identifier: Apache-2.0
-- bare_take: the shortest lock with a growing fence, as one would write it by hand
-- (bench/locks/locks.c)
-- KEYS 1 lock, 2 fence
-- ARGV 1 token, 2 TTL in ms
-- Answer: the fence, or 0 if the lock is held
local t = redis.call('TIME')
local fence = string.format('%.0f',
    math.max((tonumber(redis.call('GET', KEYS[2])) or 0) + 1, t[1] * 1000000 + t[2]))
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], fence)
return fence
