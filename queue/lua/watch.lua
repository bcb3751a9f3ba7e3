#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- watch: the states of ranges of offsets, for an owner that parked messages, or was just assigned a partition.
-- KEYS 1 epoch, 2 floor, then state segments
-- ARGV 1 epoch id, then per segment: topic:partition, first byte, last byte
-- Result: 'LOST' or a list: per segment two: floor ('' where none is known) and the bytes, four states a byte
local id = ARGV[1]
if redis.call('HGET', KEYS[1], 'id') ~= id then return 'LOST' end
local out = {}
for i = 0, #KEYS - 3 do
    out[2 * i + 1] = redis.call('HGET', KEYS[2], ARGV[2 + 3 * i]) or ''
    out[2 * i + 2] = redis.call('GETRANGE', KEYS[3 + i], ARGV[3 + 3 * i], ARGV[4 + 3 * i])
end
return out
