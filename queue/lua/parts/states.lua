-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A state is two bits. A byte holds the states of four offsets, the lowest offset in the highest
-- bits. A call reads only the bytes of a segment that it needs: one range if its arguments name
-- one, and pages of PAGE bytes around everything else.
local PAGE = 64
-- The segments that the call's arguments name (parts/places.lua). A segment is {tp =
-- topic:partition, number, base = its first offset, key = the Redis key of its states, floor,
-- has_tries}; `page` is the page used last, `range` the range, s[n] the page that begins at byte
-- n.
local named = {}

-- A page or range is {segment, first byte, last byte, text}. page[i] is the i-th byte if it was
-- changed. What is not in the text, which may end early, is 0.
local function read_page(s, first, last)
    return {segment = s, first = tonumber(first), last = tonumber(last),
        text = call('GETRANGE', s.key, first, last)}
end
-- Returns the page that has a byte, and makes it the page used last. No page has bytes of the
-- range, so that each byte is in one place.
local function turn_to(s, at)
    local page, range = nil, s.range
    if range and at >= range.first and at <= range.last then
        page = range
    else
        local first = at - at % PAGE
        local last = first + PAGE - 1
        if range and at > range.last then first = math.max(first, range.last + 1) end
        if range and at < range.first then last = math.min(last, range.first - 1) end
        page = s[first]
        if not page then
            page = read_page(s, first, last)
            s[first] = page
        end
    end
    s.page = page
    return page
end
local function get_state(s, index)
    local k = index % 4
    local at = (index - k) / 4
    local page = s.page
    if not page or at < page.first or at > page.last then page = turn_to(s, at) end
    local i = at - page.first + 1
    local b, d = page[i] or byte(page.text, i), 4 ^ (3 - k)
    return b and (b - b % d) / d % 4 or LW_STATE_UNSEEN
end
