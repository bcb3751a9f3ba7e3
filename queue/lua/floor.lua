#!lua flags=allow-oom
-- floor: commits that Kafka accepted. Raises floors, never lowers one, and deletes the segments that they passed.
-- KEYS 1 epoch, 2 floor
-- ARGV 1 epoch id, then (topic:partition, committed, from)…; from: below it nothing was ever written, where no floor is known
-- Result: 'OK' or 'LOST'
-- @lane
if refuse(ARGV[1], '', 0) == 'LOST' then return 'LOST' end
for at = 2, #ARGV, 3 do raise_floor(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])) end
return 'OK'
