#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- look: lanes as they stand, for people.
-- KEYS 1 epoch, 2 lanes, 3 floor
-- ARGV lanes
-- Result: Redis time ms, then seven a lane: elements of its list, -1 where its name holds another type; the oldest one's line of numbers, ''
--      where none is; value of the lock, ''; ms until it ends, -1 never; '1' where the lane is paused; attempts of the oldest so far; when it
--      is due, 0 now. Elements that are finished may still be counted: the next claim or settle of the lane drops them.
--      Of large messages fewer lanes than were asked for, one at least: ask again for the others.
-- @tries @envelopes @lanes
-- Lanes' messages lie anywhere: a byte each, not the bytes around it, of which a call over many lanes would read megabytes.
local function is_over(tp, offset)
    if offset < floor_of(tp) then return true end
    local index = offset % LW_SEGMENT
    local at, k = floor(index / 4), index % 4
    local b = byte(call('GETRANGE', P .. 'state:' .. segment_name(tp, floor(offset / LW_SEGMENT)), at, at), 1) or 0
    return floor(b / DIVISOR[k]) % 4 >= LW_STATE_DONE
end

local BYTES_MAX = 131072
local out, read = {text(now)}, 0

-- The oldest unfinished message. A few finished ones may still be at the end. Reads one at a time, because
-- payloads may be large.
local function oldest(wait, n)
    local enough = read + 8 * BYTES_MAX
    for k = 1, math.min(n, 16) do
        if read > enough then return nil end
        local envelope = call('LINDEX', wait, -k)
        read = read + #envelope
        local tp, offset = identity_of(envelope)
        if tp and not is_over(tp, offset) then return envelope, tp, offset end
    end
    return nil
end

for i, lane in ipairs(ARGV) do
    local wait, lock = P .. 'wait:' .. lane, P .. 'lock:' .. lane
    local n, line, tried, due, _ = pcall_('LLEN', wait), '', 0, 0, nil
    if type(n) == 'table' then n = -1 end
    if n > 0 then
        local envelope, tp, offset = oldest(wait, n)
        if envelope then
            line = string.match(envelope, '^[^\n]*')
            tried, _, due = tries_of(tp, offset)
        end
    end
    local held, left = pcall_('GET', lock), 0
    if type(held) == 'table' then held = '(not a lock)' end
    if held then left = call('PTTL', lock) end
    local at = 7 * i - 5
    out[at], out[at + 1], out[at + 2], out[at + 3] = text(n), line, held or '', text(left)
    out[at + 4], out[at + 5], out[at + 6] = is_paused(lock) and '1' or '', text(tried), text(due)
    if read > BYTES_MAX then break end
end
return out
