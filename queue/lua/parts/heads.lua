-- SPDX-License-Identifier: Apache-2.0
-- @segments @tries @envelopes @lanes
-- Waiting messages may be large, so the number of bytes that a call reads from waiting lists is
-- limited. call_left is the number of bytes that the call may still read. lane_bytes is the maximum
-- size of the messages granted per lane. `largest` is the size of the largest envelope that the
-- caller has seen recently or this call has read; it decides how many elements are read at once.
-- The size of an element is not known before it is read, so LW_READ_AT_ONCE limits the cost of
-- unexpectedly large elements.
local PRUNE_MAX = 4096
local call_left, lane_bytes, largest = LW_CALL_BYTES, LW_LANE_BYTES, 0
local function take_bounds(bounds)
    local lane, all, met = string.match(bounds, '^(%d+) (%d+) (%d+)$')
    lane_bytes, call_left, largest = tonumber(lane), tonumber(all), tonumber(met)
end
local function read_at_once(room)
    local n = LW_READ_AT_ONCE
    if largest * n > room then n = math.max(1, floor(math.min(room, call_left) / largest)) end
    return n
end
local function count_read(envelope)
    call_left = call_left - #envelope
    if #envelope > largest then largest = #envelope end
end

-- Removes finished heads, then returns a list of the next unfinished heads, oldest first. The list
-- has at most `want` entries {envelope, topic:partition, offset}. The envelopes together have at
-- most lane_bytes, but the first one is returned even if it is larger. If `after_tp` and
-- `after_offset` name a message, only messages behind this message are returned. In this case the
-- messages up to the named one count towards lane_bytes, because they are already granted, and no
-- message is returned beyond lane_bytes. `before` is the number of elements that the caller expects
-- before the wanted ones. Returns nil, and removes the lane from `lanes`, if no message is left.
-- Returns 'MORE' if a limit (PRUNE_MAX removed heads, or the bytes that the call may read) was
-- reached before an unfinished message was found. Returns 'BAD' if the key of the list has another
-- type.
local trimmed = false -- true if the caller has just removed heads of the lane
local function take_heads(lane, want, before, after_tp, after_offset)
    local emptied = trimmed
    trimmed = false
    if call_left <= 0 then
        if emptied and call('EXISTS', P .. 'wait:' .. lane) == 0 then
            forget_lane(lane)
            return nil
        end
        return 'MORE'
    end
    -- `at` is the number of examined elements that stay in the list
    local wait, size, at, dropped, granted = P .. 'wait:' .. lane, before + want, 0, 0, 0
    local out, n, any, behind, seen, full = {}, 0, false, after_tp == nil, {}, false
    repeat
        local most = read_at_once(lane_bytes - granted)
        if at + dropped == 0 then most = most + before end
        most = math.min(most, size - at - dropped)
        local list = pcall_('LRANGE', wait, -at - most, -at - 1)
        if list.err then return 'BAD' end
        local drop, read, most_bytes = 0, 0, largest
        for i = #list, 1, -1 do
            local envelope = list[i]
            local bytes = #envelope
            read = read + bytes
            if bytes > most_bytes then most_bytes = bytes end
            local tp, offset, n_dedup = identity_of(envelope)
            local over = tp and finished(tp, offset)
            local mine = any and tp and seen[tp]
            -- a message is in the list twice if one owner put it back and the next owner parked it
            local again = mine and mine[offset]
            if tp and not over and n_dedup ~= '0'
                    and is_duplicate(dedup_of(envelope), tp, offset) then
                set_state(tp, offset, LW_STATE_DONE)
                finish_unsaved = true
                duplicates = duplicates + 1
                over = true
            end
            -- an element that is no envelope, or only a part of an envelope, is moved to the dead
            -- letters, where operators find it
            if not tp and not any then
                pcall_('XADD', P .. 'dead', '*', 'envelope', envelope, 'reason',
                    'not an envelope of this version', 'attempts', '0')
                over = true
            end
            if over then
                if not any then drop = drop + 1 end
            elseif not tp then
                full = true
            elseif not again then
                any = true
                if not mine then
                    mine = {}
                    seen[tp] = mine
                end
                mine[offset] = true
                granted = granted + bytes
                local fits = granted <= lane_bytes
                if not behind then
                    behind = tp == after_tp and offset == after_offset
                elseif fits or (n == 0 and not after_tp) then
                    n = n + 1
                    out[n] = {envelope, tp, offset}
                    full = n == want
                else
                    full = true
                end
            end
            if full then break end
        end
        call_left, largest = call_left - read, most_bytes
        -- Stop if the next element would not fit, assuming that it is as large as the element read
        -- last.
        if n > 0 and #list > 0 and granted + #list[1] > lane_bytes then full = true end
        if drop > 0 then
            if finish_unsaved then save_states() end
            call('LTRIM', wait, 0, -1 - drop)
        end
        at, dropped = at + #list - drop, dropped + drop
        if not any and #list < most then
            if dropped > 0 or emptied then
                forget_lane(lane)
            elseif call('ZMSCORE', P .. 'lanes', lane)[1] then
                forget_vanished(lane)
            end
            return nil
        end
        if at + dropped == size and not any then size = size + 16 end
    until full or #list < most or at + dropped == size or dropped >= PRUNE_MAX or call_left <= 0
    -- the loop may have stopped at a limit just when it had removed the last element of the list
    if not any and call('EXISTS', wait) == 0 then
        forget_lane(lane)
        return nil
    end
    return any and out or 'MORE'
end

-- Returns the envelope, partition and offset of the lane's oldest unfinished message. If there is
-- none, or the search for it ended early, returns nil, 'MORE' or 'BAD' like take_heads().
local function first_unfinished(lane)
    local heads = take_heads(lane, 1, 0)
    if type(heads) ~= 'table' then return heads end
    return heads[1][1], heads[1][2], heads[1][3]
end

-- Returns the head to run now, or nil, 'MORE' or 'BAD' like first_unfinished(). With retry.order
-- skip, heads that are not due yet are rotated to the left end of the list. If none of the examined
-- heads (at most HEADS_MAX) is due, returns 'UNDUE' and the earliest of their due times. But the
-- time is at most LOOK_ON_MS from now if the call reaches its limit of bytes before it has examined
-- all these heads, and at most LOOK_ALL_MS from now if the list has more, since others may be due.
local HEADS_MAX, LOOK_ON_MS, LOOK_ALL_MS = 256, 100, 1000
local function runnable_head(lane, skip)
    local head, tp, offset = first_unfinished(lane)
    if not skip or not tp then return head, tp, offset end
    local wait = P .. 'wait:' .. lane
    local earliest, length = nil, call('LLEN', wait)
    for _ = 1, math.min(length, HEADS_MAX) do
        local _, _, due = tries_of(tp, offset)
        if due <= now then return head, tp, offset end
        earliest = math.min(earliest or due, due)
        call('RPOPLPUSH', wait, wait)
        call_left = call_left - #head
        head, tp, offset = first_unfinished(lane)
        if head == 'MORE' then return 'UNDUE', math.min(earliest, now + LOOK_ON_MS) end
        if not tp then return head end
    end
    if length > HEADS_MAX then earliest = math.min(earliest, now + LOOK_ALL_MS) end
    return 'UNDUE', earliest
end

-- Without retry.order skip, returns the same as take_heads(). With retry.order skip, returns a list
-- of one head that is due. If no such head was found, returns the same as runnable_head().
local function runnable_heads(lane, skip, want, before, after_tp, after_offset)
    if not skip then return take_heads(lane, want, before, after_tp, after_offset) end
    local head, tp, offset = runnable_head(lane, true)
    if not tp or head == 'UNDUE' then return head, tp end
    return {{head, tp, offset}}
end
