-- SPDX-License-Identifier: Apache-2.0
-- permit_drop: gives back one permit of a semaphore
-- KEYS 1 zset of leases, 2 zset of waiting clients
-- ARGV 1 value
-- Result: 1, or 0 if the caller's lease had ended
-- @fences
-- @waiting
-- @shares
local live = share_is_live(KEYS[1], ARGV[1])
if call('ZREM', KEYS[1], ARGV[1]) == 1 then wake(KEYS[2]) end
return live and 1 or 0
