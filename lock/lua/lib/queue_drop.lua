-- SPDX-License-Identifier: Apache-2.0
-- queue_drop: releases a fair lock, or one side of a read/write lock
-- KEYS 1 the writer's lock (string), 2 queue of writers, 3 zset of live clients;
--      for read/write also 4 the readers' leases (zset), 5 queue of readers
-- ARGV 1 value, 2 'r' for a reader, 'w' for a writer
-- Result: 1, or 0 if the caller does not hold the lock
-- @fences
-- @waiting
-- @queues
-- @shares
local lock, writers, alive, readers, waiting_readers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if ARGV[2] == 'r' then
    local live = share_is_live(readers, ARGV[1])
    if call('ZREM', readers, ARGV[1]) == 1 and call('EXISTS', lock) == 0 then
        tell_queues(writers, alive, readers, waiting_readers)
    end
    return live and 1 or 0
end
if call('GET', lock) ~= ARGV[1] then return 0 end
call('DEL', lock)
tell_queues(writers, alive, readers, waiting_readers)
return 1
