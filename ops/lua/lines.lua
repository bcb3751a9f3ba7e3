#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- lines: read the first lines of some envelopes of a list, and the state of the list's lane at the
-- same moment.
-- KEYS 1 list, 2 lanes
-- ARGV 1 number of elements to skip, from the oldest, 2 maximum number of elements, 3 lane
-- Result: {number of elements in the list, the lane's score in `lanes` ('' if it has none), then
--      the lines}. If elements are large, the script returns fewer lines than requested, so that it
--      does not block Redis.
local at, left, some = tonumber(ARGV[1]), tonumber(ARGV[2]), 2
local out = {redis.call('LLEN', KEYS[1]), redis.call('ZSCORE', KEYS[2], ARGV[3]) or ''}
local room = 1048576
while left > 0 and room > 0 do
    some = math.min(some, left)
    local list, largest = redis.call('LRANGE', KEYS[1], -at - some, -at - 1), 0
    for i = #list, 1, -1 do
        out[#out + 1] = string.match(string.sub(list[i], 1, 512), '^[^\n]*')
        room, largest = room - #list[i], math.max(largest, #list[i])
    end
    if #list < some then break end
    at, left, some = at + some, left - some, largest > 65536 and 1 or 16
end
return out
