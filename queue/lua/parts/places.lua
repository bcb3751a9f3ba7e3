-- SPDX-License-Identifier: Apache-2.0
-- @states
-- gate and settle get the segments of a batch in the following form. From KEYS[first_key] on there
-- are two keys per segment: its states and its tries. From ARGV[at] on there are four arguments per
-- segment: topic:partition, the number of the segment, and the first and the last byte of the
-- range to read at once. If a segment's messages are few and far apart, the first byte is 1 and
-- the last byte is 0, and only the page of each message is read. A message's place consists of
-- three bytes: one for its segment, counted from 1, and two for its index in the segment.
-- One command looks up what a shard mostly has none of: lanes with waiting messages, paused lanes
-- (any_paused in parts/epoch.lua), and messages that were tried before. `waiting` says which lanes
-- of the batch have waiting messages; it is nil if no lane of the shard has any.
local places, waiting, any_tries = ARGV[9], nil, nil
local function take_places(n, first_key, at)
    local names, rare = {}, {KEYS[2], P .. 'paused'}
    for g = 1, n do
        names[g], rare[g + 2] = ARGV[at + 4 * g - 4], KEYS[first_key + 2 * g - 1]
    end
    local found = call('EXISTS', unpack(rare))
    if found > 0 and call('EXISTS', rare[1]) == 1 then
        found = found - 1
        local lanes = {}
        for i = first_key + 2 * n, #KEYS do lanes[#lanes + 1] = sub(KEYS[i], LOCK_PREFIX) end
        waiting = call('ZMSCORE', rare[1], unpack(lanes))
    end
    any_paused = found > 0 and call('EXISTS', rare[2]) == 1
    any_tries = found > (any_paused and 1 or 0)
    if n == 0 then return end
    local floors_now = call('HMGET', KEYS[3], unpack(names))
    for g = 1, n do
        local number, first, last = tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
        local s = {tp = names[g], number = number, base = number * LW_SEGMENT,
            key = KEYS[first_key + 2 * g - 2], floor = tonumber(floors_now[g] or 0),
            has_tries = any_tries and call('EXISTS', rare[g + 2]) == 1}
        if first ~= '1' or last ~= '0' then s.range = read_page(s, first, last) end
        named[g], at = s, at + 4
    end
end
-- Returns the segment of the message with the n-th place, and its index in the segment.
local function place(n)
    local g, high, low = byte(places, 3 * n - 2, 3 * n)
    return named[g], high * 256 + low
end
