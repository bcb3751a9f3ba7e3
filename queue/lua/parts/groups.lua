-- SPDX-License-Identifier: Apache-2.0
-- @states
-- The batch's partitions, as gate and settle name them: KEYS from first_key on G × (state segment, tries segment), ARGV from `at` on
-- G × (topic:partition, number of the segment, first and last byte to read at once, 1 and 0 for none: where its messages are few and far
-- apart, each has its page read). A message's place is three bytes: which of these, from 1, and its index in the segment.
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
        s.tp, s.base, s.has_tries = tp, number * LW_SEGMENT, any_tries and call('EXISTS', tries[g]) == 1
        if first <= last then read_pages(s, floor(first / PAGE), floor(last / PAGE)) end
        groups[g], names[g] = s, tp
    end
    local now_floors = call('HMGET', KEYS[3], unpack(names))
    for g = 1, n do
        floors[names[g]] = tonumber(now_floors[g] or 0)
        groups[g].floor = floors[names[g]]
    end
end
-- One look at all the bytes of a string of places.
local function bytes_of(s)
    if #s <= 4000 then return {byte(s, 1, -1)} end
    local out = {}
    for i = 1, #s, 4000 do
        local some = {byte(s, i, i + 3999)}
        for k = 1, #some do out[i + k - 1] = some[k] end
    end
    return out
end
