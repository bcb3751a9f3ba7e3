-- SPDX-License-Identifier: Apache-2.0
-- @segments
-- Raises a floor, never lowers it, and deletes the segments below it. Deletes at most SEGMENTS_MAX
-- segments per call, over all partitions. Before the floor rises, the hash `sweep` (TOPIC:PARTITION
-- -> first segment not yet deleted) records the work, so that a later call can complete it if this
-- call fails. `from` is an offset below which nothing was ever written; it is used only if no floor
-- is known. Each commit raises the floor, so a partition without a floor has few segments, and only
-- the last SEGMENTS_MAX are deleted. If `only_raise` is true and the floor does not rise, does
-- nothing. Returns false if segments remain; the caller must then ask again.
local SEGMENTS_MAX = 4096
local segments_left = SEGMENTS_MAX
local any_sweep = nil
local function raise_floor(tp, committed, from, only_raise)
    local known = call('HGET', P .. 'floor', tp)
    local was = tonumber(known or from)
    if any_sweep == nil then any_sweep = call('EXISTS', P .. 'sweep') == 1 end
    local left = any_sweep and tonumber(call('HGET', P .. 'sweep', tp) or '')
    local raised = not known or committed > was
    if not raised and (only_raise or not left) then return true end
    local to = raised and committed or was
    local first, last = left or floor(was / LW_SEGMENT), floor(to / LW_SEGMENT) - 1
    if not known and not left then first = math.max(first, last + 1 - SEGMENTS_MAX) end
    if first <= last and not left then call('HSET', P .. 'sweep', tp, text(first)) end
    if raised then call('HSET', P .. 'floor', tp, text(to)) end
    floors[tp] = to
    local stop = math.min(last, first + segments_left - 1)
    for segment = first, stop do
        local s = tp .. ':' .. text(segment)
        call('DEL', P .. 'state:' .. s, P .. 'tries:' .. s)
    end
    segments_left = segments_left - math.max(stop + 1 - first, 0)
    if stop < last then
        call('HSET', P .. 'sweep', tp, text(stop + 1))
        any_sweep = true
        return false
    end
    if left or first <= last then call('HDEL', P .. 'sweep', tp) end
    return true
end
