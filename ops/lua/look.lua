#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- look: read the state of lanes, to be shown to operators.
-- KEYS 1 epoch, 2 lanes, 3 floor
-- ARGV names of lanes
-- Result: Redis' time in ms, then eight values per lane:
--      1 number of elements in the lane's list, including finished messages, which the next claim
--        or settle of the lane removes; -1 if the Redis key wait:<lane> is not a list
--      2 first line of the oldest unfinished envelope, '' if none was found
--      3 value of the lock, '' if there is no lock
--      4 ms until the lock ends, -1: never
--      5 '1' if the lane is paused
--      6 number of attempts of the oldest message so far
--      7 time when the oldest message is due; 0: the message is due now
--      8 the message that runs, as 'IDENTITY ATTEMPT SINCE_MS' (renew.lua); '' if it is not known:
--        a message is named when its lease is renewed, a third of the TTL after its start
-- If messages are large, the answer covers fewer lanes than requested, but at least one. The caller
-- must call again for the other lanes.
-- @tries @envelopes @lanes
-- The script reads one byte of a segment per message, not the whole segment: the messages of many
-- lanes lie in many segments, which together may be megabytes.
local function is_over(tp, offset)
    if offset < floor_of(tp) then return true end
    local index = offset % LW_SEGMENT
    local at, s = floor(index / 4), segment_of(tp, offset)
    s.page = read_page(s, at, at)
    return get_state(s, index) >= LW_STATE_DONE
end

local BYTES_MAX = 131072
local out, read = {text(now)}, 0

-- Returns the oldest unfinished message. Older finished messages may still be in the list. Messages
-- are read one at a time, because payloads may be large. Returns nil if no unfinished message is
-- found before the function has read 16 messages or too many bytes.
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

-- Returns the message that runs under the lock with this value. A hold runs its messages one after
-- the other, so a message that has ended since the last renewal is left out.
local function running(lane, held)
    local noted = pcall_('GET', P .. 'run:' .. lane)
    if type(noted) ~= 'string' or string.sub(noted, 1, #held + 1) ~= held .. ' ' then return '' end
    local run = string.sub(noted, #held + 2)
    local topic, partition, offset, replay = string.match(run, '^(%S+)/(%d+)/(%d+)(%S*) ')
    local ended = not topic or is_over(topic .. ':' .. partition .. replay, tonumber(offset))
    return ended and '' or run
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
    local at = 8 * i - 6
    out[at], out[at + 1], out[at + 2], out[at + 3] = text(n), line, held or '', text(left)
    out[at + 4], out[at + 5], out[at + 6] = is_paused(lock) and '1' or '', text(tried), text(due)
    out[at + 7] = held and running(lane, held) or ''
    if read > BYTES_MAX then break end
end
return out
