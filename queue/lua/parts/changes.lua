-- SPDX-License-Identifier: Apache-2.0
-- @states
-- A replayed message (queue/envelope.h: replay > 0) belongs to a partition "TOPIC:PARTITION#REPLAY"
-- that has no owner. Such a partition has no floor, and the replay has its own state and tries, so
-- it runs even if the original message is known to be done. The marks of a replay expire long after
-- it has left its waiting list.
local REPLAY_MARK_S = 604800

-- Changes states. Changes stay in memory, where later reads of the call see them, until
-- save_states() writes them to Redis: of each page or range, the bytes from the first change to the
-- last. Two kinds of writes rely on the states, so they come after the states are written: the
-- removal of finished heads from a list, and the end of a lock. finish_unsaved is true if this call
-- has found that a message is finished, and has not yet written the state of this message to Redis.
local finish_unsaved, dirty = false, {}
-- Sets the state of a message, unless the message is finished. Does not compare the offset with the
-- floor; the callers do that.
local function put_state(s, index, state)
    local k = index % 4
    local at = (index - k) / 4
    local page = s.page
    if not page or at < page.first or at > page.last then page = turn_to(s, at) end
    local i = at - page.first + 1
    local b, d = page[i] or byte(page.text, i) or 0, 4 ^ (3 - k)
    local was = (b - b % d) / d % 4
    if was >= LW_STATE_DONE or was == state then return end
    page[i] = b + (state - was) * d
    if not page.lo then
        page.lo, page.hi = i, i
        dirty[#dirty + 1] = page
    elseif i < page.lo then
        page.lo = i
    elseif i > page.hi then
        page.hi = i
    end
end
local function save_states()
    -- Pages of a partition are written in the order of their offsets, lowest first, because a
    -- message must never be recorded as done while an earlier message of its key is not.
    if #dirty > 1 then
        table.sort(dirty, function(a, b)
            if a.segment.number ~= b.segment.number then
                return a.segment.number < b.segment.number
            end
            return a.first < b.first
        end)
    end
    for _, page in ipairs(dirty) do
        local key = page.segment.key
        for i = page.lo, page.hi do page[i] = page[i] or byte(page.text, i) or 0 end
        call('SETRANGE', key, page.first + page.lo - 1,
            string.char(unpack(page, page.lo, page.hi)))
        if find(page.segment.tp, '#', 1, true) then call('EXPIRE', key, REPLAY_MARK_S) end
        page.lo = nil
    end
    dirty, finish_unsaved = {}, false
end
