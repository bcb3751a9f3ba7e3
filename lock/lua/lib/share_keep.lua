-- SPDX-License-Identifier: Apache-2.0
-- share_keep: extends a lease in a zset unless it has ended, or only checks whether it has ended.
-- This script never takes a lease.
-- KEYS 1 zset of leases
-- ARGV 1 value, 2 ttl_ms, '0' to check only
-- Result: 1, or 0 if the zset has no such lease, or the lease has ended
-- @fences
-- @shares
if not share_is_live(KEYS[1], ARGV[1]) then return 0 end
if ARGV[2] ~= '0' then add_share(KEYS[1], ARGV[1], ARGV[2]) end
return 1
