-- SPDX-License-Identifier: Apache-2.0
-- @states
-- gate and settle get the segments of a batch in the following form. From KEYS[first_key] on there
-- are two keys per segment: its states and its tries. From ARGV[at] on there are four arguments per
-- segment: topic:partition, the number of the segment, and the first and the last byte of the range
-- to read at once. If a segment's messages are few and far apart, the first byte is 1 and the last
-- byte is 0, and only the page of each message is read. A message's place consists of three bytes:
-- one for its segment, counted from 1, and two for its index in the segment.
local groups = {}
local function take_groups(n, first_key, at)
    if n == 0 then return end
    local names, tries = {}, {}
    for g = 1, n do tries[g] = KEYS[first_key + 2 * g - 1] end
    local any_tries = call('EXISTS', unpack(tries)) > 0
    for g = 1, n do
        local tp, number = ARGV[at], tonumber(ARGV[at + 1])
        local first, last = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
        at = at + 4
        local s = segment_at(tp, number, KEYS[first_key + 2 * g - 2])
        s.tp, s.base, s.has_tries = tp, number * LW_SEGMENT,
            any_tries and call('EXISTS', tries[g]) == 1
        if first <= last then read_pages(s, floor(first / PAGE), floor(last / PAGE)) end
        groups[g], names[g] = s, tp
    end
    local now_floors = call('HMGET', KEYS[3], unpack(names))
    for g = 1, n do
        floors[names[g]] = tonumber(now_floors[g] or 0)
        groups[g].floor = floors[names[g]]
    end
end
-- Returns the bytes of a string as a list. Reads 4,000 bytes at a time, because Lua limits the
-- number of results of one call.
local function bytes_of(s)
    if #s <= 4000 then return {byte(s, 1, -1)} end
    local out = {}
    for i = 1, #s, 4000 do
        local some = {byte(s, i, i + 3999)}
        for k = 1, #some do out[i + k - 1] = some[k] end
    end
    return out
end
