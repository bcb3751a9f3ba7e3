-- SPDX-License-Identifier: Apache-2.0
-- permit_drop: gives a permit back
-- KEYS 1 zset of leases, 2 zset of waiting clients
-- ARGV 1 value
-- Result: 1, or 0 if it is not ours
-- @fences
-- @waiting
-- @shares
local live = share_is_live(KEYS[1], ARGV[1])
if call('ZREM', KEYS[1], ARGV[1]) == 1 then wake(KEYS[2]) end
return live and 1 or 0
