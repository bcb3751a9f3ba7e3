-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A replayed message (queue/envelope.h: replay > 0) belongs to a partition "TOPIC:PARTITION#REPLAY"
-- that has no owner. Such a partition has no floor, and the replay has its own state and tries, so
-- it runs even if the original message is known to be done. The marks of a replay expire long after
-- it has left its waiting list.
local REPLAY_MARK_S = 604800

-- A state is two bits. A byte holds the states of four offsets, the lowest offset in the highest
-- bits. A call reads only the pages of a segment that it needs, or a range of pages at once if its
-- arguments name a range. Changes stay in memory, where later reads of the call see them, until
-- save_states() writes them to Redis: of each page, the bytes from the first change to the last.
-- Two kinds of writes rely on the states, so they come after the states are written: the removal of
-- finished heads from a list, and the end of a lock. finish_unsaved is true if this call has found
-- that a message is finished, and has not yet written the state of this message to Redis.
local finish_unsaved = false
local floors, segments, dirty = {}, {}, {}
local DIVISOR = {[0] = 64, 16, 4, 1}
local PAGE = 64 -- number of bytes of a segment that are read together
local function floor_of(tp)
    local f = floors[tp]
    if not f then
        f = tonumber(call('HGET', P .. 'floor', tp) or 0)
        floors[tp] = f
    end
    return f
end
local function segment_name(tp, number) return tp .. ':' .. text(number) end
local function segment_at(tp, number, key)
    local mine = segments[tp]
    if not mine then
        mine = {}
        segments[tp] = mine
    end
    local s = mine[number]
    if not s then
        s = {key = key or P .. 'state:' .. segment_name(tp, number), number = number, first = 0,
            page = {}}
        mine[number] = s
    end
    return s
end
local function segment_of(tp, offset)
    return segment_at(tp, (offset - offset % LW_SEGMENT) / LW_SEGMENT)
end
-- s.page is the page used last, and begins at byte s.first of the segment. s[n] is page number n.
-- Pages that were read together share one table.
local function read_pages(s, first, last)
    local page = {byte(call('GETRANGE', s.key, first * PAGE, last * PAGE + PAGE - 1), 1, -1)}
    for i = #page + 1, (last - first + 1) * PAGE do page[i] = 0 end
    page.first = first * PAGE
    for n = first, last do s[n] = page end
    return page
end
local function turn_to(s, at)
    local n = floor(at / PAGE)
    local page = s[n] or read_pages(s, n, n)
    s.page, s.first = page, page.first
    return page[at - page.first + 1]
end
local function get_state(s, index)
    local k = index % 4
    local at = (index - k) / 4
    local b = s.page[at - s.first + 1] or turn_to(s, at)
    if b == 0 then return 0 end
    local d = DIVISOR[k]
    return (b - b % d) / d % 4
end
-- Sets the state of a message, unless the message is finished. Does not compare the offset with the
-- floor; the callers do that.
local function put_state(s, index, state)
    local k = index % 4
    local at, d = (index - k) / 4, DIVISOR[k]
    local b = s.page[at - s.first + 1] or turn_to(s, at)
    local was = (b - b % d) / d % 4
    if was >= LW_STATE_DONE or was == state then return end
    local page, i = s.page, at - s.first + 1
    page[i] = b + (state - was) * d
    if not page.lo then
        page.lo, page.hi, page.key, page.segment = i, i, s.key, s.number
        dirty[#dirty + 1] = page
    elseif i < page.lo then
        page.lo = i
    elseif i > page.hi then
        page.hi = i
    end
end
local function state_of(tp, offset)
    return get_state(segment_of(tp, offset), offset % LW_SEGMENT)
end
local function finished(tp, offset)
    return offset < floor_of(tp) or state_of(tp, offset) >= LW_STATE_DONE
end
local function set_state(tp, offset, state) -- changes no state below the floor
    if offset >= floor_of(tp) then put_state(segment_of(tp, offset), offset % LW_SEGMENT, state) end
end
-- Pages of a partition are written in the order of their offsets, lowest first, because a message
-- must never be recorded as done while an earlier message of its key is not.
local function is_older(a, b)
    if a.segment ~= b.segment then return a.segment < b.segment end
    return a.first < b.first
end
local function save_states()
    if #dirty > 1 then table.sort(dirty, is_older) end
    for _, page in ipairs(dirty) do
        call('SETRANGE', page.key, page.first + page.lo - 1,
            string.char(unpack(page, page.lo, page.hi)))
        if find(page.key, '#%d+:%d+$') then call('EXPIRE', page.key, REPLAY_MARK_S) end
        page.lo = nil
    end
    dirty, finish_unsaved = {}, false
end
