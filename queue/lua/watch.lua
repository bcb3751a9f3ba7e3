#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- watch: reads the states of ranges of offsets, for an owner that parked messages or was just
-- assigned a partition.
-- KEYS    1 epoch, 2 floor, then the states of each segment
-- ARGV    1 epoch id, then of each segment: topic:partition, first byte, last byte
-- Result: 'LOST', or a list with two elements per segment: the floor ('' if it is not known), and
--         the bytes, each of which holds four states
local id = ARGV[1]
if redis.call('HGET', KEYS[1], 'id') ~= id then return 'LOST' end
local out = {}
for i = 0, #KEYS - 3 do
    out[2 * i + 1] = redis.call('HGET', KEYS[2], ARGV[2 + 3 * i]) or ''
    out[2 * i + 2] = redis.call('GETRANGE', KEYS[3 + i], ARGV[3 + 3 * i], ARGV[4 + 3 * i])
end
return out
