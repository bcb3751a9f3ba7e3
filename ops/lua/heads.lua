#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- heads: read the oldest envelope of each of several lanes, which says when its message arrived.
-- KEYS 1 lanes
-- ARGV 1 rank of the first lane in `lanes`, 2 number of lanes to read from that rank on,
--      3 prefix of the names of waiting lists, then names of further lanes
-- Result: two elements per lane: its name, and the first line of its oldest envelope ('' if no
--      message waits)
local lanes = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[1] + ARGV[2] - 1)
for i = 4, #ARGV do lanes[#lanes + 1] = ARGV[i] end
local out = {}
for i, lane in ipairs(lanes) do
    local head = redis.pcall('LINDEX', ARGV[3] .. lane, -1)
    out[2 * i - 1] = lane
    out[2 * i] = type(head) == 'string' and string.match(string.sub(head, 1, 512), '^[^\n]*') or ''
end
return out
