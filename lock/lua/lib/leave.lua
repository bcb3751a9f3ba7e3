-- SPDX-License-Identifier: Apache-2.0
-- leave: removes a client that no longer waits. If the client was told of a release meanwhile, the
-- next client is told.
-- KEYS 1 zset of waiting clients
-- ARGV 1 client
-- Result: 1
-- @fences
-- @waiting
if call('ZREM', KEYS[1], ARGV[1]) == 0 then wake(KEYS[1]) end
return 1
