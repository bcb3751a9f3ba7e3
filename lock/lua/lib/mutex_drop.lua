-- SPDX-License-Identifier: Apache-2.0
-- mutex_drop: releases a lock if its value is the caller's
-- KEYS 1 lock, 2 zset of waiting clients, or the name of the lock if no client is to be notified;
--      if the caller gives a hint (a text that notifies other programs of the release): 3 a zset,
--      4 the list to which the hint is pushed if that zset contains the hint
-- ARGV 1 value, 2 hint
-- Result: 1, or 0 if the lock does not have this value; in that case nothing is changed
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if KEYS[2] ~= KEYS[1] then
    local first = redis.call('ZPOPMIN', KEYS[2])
    if first[1] then
-- @fences
-- @waiting
        if not tell(first[1], KEYS[2]) then wake(KEYS[2]) end
    end
end
if KEYS[3] and redis.pcall('ZSCORE', KEYS[3], ARGV[2]) then
    redis.pcall('LPUSH', KEYS[4], ARGV[2])
end
return 1
