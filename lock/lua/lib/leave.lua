-- SPDX-License-Identifier: Apache-2.0
-- leave: removes a client that no longer waits from the list of waiting clients. If the client was
-- already notified of a release, notifies the next client.
-- KEYS 1 zset of waiting clients
-- ARGV 1 client
-- Result: 1
-- @fences
-- @waiting
if call('ZREM', KEYS[1], ARGV[1]) == 0 then wake(KEYS[1]) end
return 1
