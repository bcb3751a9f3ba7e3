-- SPDX-License-Identifier: Apache-2.0
-- break: ends a lock, whoever holds it, and raises the fence
-- KEYS 1 fence, 2 zset of waiting clients (for a lock with queues, of waiting writers), or the
--      lock's own name if it has no such zset, 3… what holds the lock: string, zset or both
-- ARGV 1 largest fence that the caller has seen, 2 how long the fence counter is kept, ms, 3 'q'
--      for a lock with queues
-- Result: the new fence as a string, or 0 if nobody held it
-- @fences
-- @waiting
-- @queues
if call('EXISTS', unpack(KEYS, 3)) == 0 then return 0 end
local fence = next_fence(KEYS[1], ARGV[1])
save_fence(KEYS[1], fence, ARGV[2])
call('DEL', unpack(KEYS, 3))
if ARGV[3] == 'q' then
    tell_first(KEYS[2])
elseif KEYS[2] ~= KEYS[3] then
    wake(KEYS[2])
end
return fence
