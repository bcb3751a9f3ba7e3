-- SPDX-License-Identifier: Apache-2.0
-- @changes
-- Finds the states and the floor of a message by its partition and offset, for messages that the
-- call's arguments do not name. Inserted after take_places() was called, if the script calls it, so
-- that no segment is in memory twice.
local floors, segments = {}, {}
for _, s in ipairs(named) do
    floors[s.tp] = s.floor
    segments[s.tp] = segments[s.tp] or {}
    segments[s.tp][s.number] = s
end
local function floor_of(tp)
    local f = floors[tp]
    if not f then
        f = tonumber(call('HGET', P .. 'floor', tp) or 0)
        floors[tp] = f
    end
    return f
end
local function segment_name(tp, number) return tp .. ':' .. text(number) end
local function segment_of(tp, offset)
    local mine, number = segments[tp], (offset - offset % LW_SEGMENT) / LW_SEGMENT
    if not mine then
        mine = {}
        segments[tp] = mine
    end
    local s = mine[number]
    if not s then
        s = {key = P .. 'state:' .. segment_name(tp, number), tp = tp, number = number}
        mine[number] = s
    end
    return s
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
