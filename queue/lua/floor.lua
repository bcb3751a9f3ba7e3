#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- floor: commits that Kafka accepted. Raises floors, never lowers one, and deletes the segments that they passed.
-- KEYS 1 epoch, 2 floor
-- ARGV 1 epoch id, then (topic:partition, committed, from)…; from: below it nothing was ever written, where no floor is known
-- Result: 'OK', 'LOST', or how many of the partitions were taken, from the first on: enough segments for one call are deleted. The next
--      one's floor may be raised, but is to be told again
-- @floors
if refuse(ARGV[1], '', 0) == 'LOST' then return 'LOST' end
for at = 2, #ARGV, 3 do
    if not raise_floor(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])) then return (at - 2) / 3 end
end
return 'OK'
