-- SPDX-License-Identifier: Apache-2.0
-- queue_leave: removes a waiter that stops waiting. If the lock is free, notifies the next waiters.
-- KEYS 1 the writer's lock (string), 2 queue of writers, 3 zset of live clients;
--      for read/write also 4 the readers' leases (zset), 5 queue of readers
-- ARGV 1 waiter, 2 'r' for a reader, 'w' for a writer
-- Result: 1
-- @fences
-- @waiting
-- @queues
call('ZREM', ARGV[2] == 'r' and KEYS[5] or KEYS[2], ARGV[1])
if call('EXISTS', KEYS[1]) == 0 then tell_queues(KEYS[2], KEYS[3], KEYS[4], KEYS[5]) end
return 1
