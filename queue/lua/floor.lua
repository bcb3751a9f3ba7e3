#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- floor: raises floors to the commits that Kafka has accepted, never lowers a floor, and deletes
-- the segments below the floors.
-- KEYS    1 epoch, 2 floor
-- ARGV    1 epoch id, then of each partition: topic:partition, committed, from (an offset below
--         which nothing was ever written; used only if no floor is known)
-- Result: 'OK', 'LOST', or, if the call has deleted as many segments as one call may, the number of
--         partitions that it has handled completely. The caller must send the other partitions
--         again; the floor of the first of them may already be raised.
-- @floors
if refuse(ARGV[1], '', 0) == 'LOST' then return 'LOST' end
for at = 2, #ARGV, 3 do
    if not raise_floor(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])) then
        return (at - 2) / 3
    end
end
return 'OK'
