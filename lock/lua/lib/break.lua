-- SPDX-License-Identifier: Apache-2.0
-- break: ends a lock, no matter which client holds it, and increases the fence
-- KEYS 1 fence counter, 2 zset of waiting clients, or of waiting writers if the lock has queues, or
--      the name of the lock if it has no such zset, 3… keys that contain the lock: string or zset
-- ARGV 1 largest fence that the caller has seen, 2 lifetime of the fence counter in ms,
--      3 'q' if the lock has queues
-- Result: the new fence as a string, or 0 if no client held the lock
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
