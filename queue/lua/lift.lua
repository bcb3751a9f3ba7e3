#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- lift: a quarantined worker asks whether it may continue, and reports what it knows of the group's
-- commits. No message is given to a handler before the group has a commit. Therefore an epoch that
-- began while the group had no commit needs no quarantine: no lease from before that epoch can be
-- live.
-- KEYS    1 epoch
-- ARGV    1 epoch id, 2 '1' if the group has a commit,
--         3 '1' if the group had no commit at a moment after this epoch began, and this server was
--         never a replica (so that no other server continues with these locks)
-- Result: 'LOST', or {ms left of the quarantine, 1 while no commit is known, otherwise 0}
-- @epoch
if refuse(ARGV[1], '', 0) == 'LOST' then return 'LOST' end
local left, first = tonumber(epoch[2] or 0) - now, epoch[4]
if first and ARGV[2] == '1' then
    call('HDEL', KEYS[1], 'first')
    first = false
end
if left > 0 and ARGV[3] == '1' then
    call('HSET', KEYS[1], 'not_before', '0')
    left = 0
end
return {math.max(left, 0), first and 1 or 0}
