-- SPDX-License-Identifier: Apache-2.0
-- leave: the client waits no more. Where it had been told of a release meanwhile, the next is told.
-- KEYS 1 zset of waiting clients
-- ARGV 1 client
-- Result: 1
-- @fences
-- @waiting
if call('ZREM', KEYS[1], ARGV[1]) == 0 then wake(KEYS[1]) end
return 1
