-- SPDX-License-Identifier: Apache-2.0
-- queue_leave: removes a waiter that gives up, and tells those behind it if it is their turn now
-- KEYS 1 string of the writer, 2 queue of writers, 3 clients alive, and for read/write 4 zset of
--      readers, 5 queue of readers
-- ARGV 1 waiter, 2 'r' for a reader, 'w' for a writer
-- Result: 1
-- @fences
-- @waiting
-- @queues
call('ZREM', ARGV[2] == 'r' and KEYS[5] or KEYS[2], ARGV[1])
if call('EXISTS', KEYS[1]) == 0 then tell_queues(KEYS[2], KEYS[3], KEYS[4], KEYS[5]) end
return 1
