#!lua
-- SPDX-License-Identifier: Apache-2.0
-- gate: decides for each of a batch of new messages whether it runs at once, waits in its lane, is
-- finished, or is a duplicate. Messages of one lane come together and in order, and the first
-- unfinished message decides whether they run or wait.
-- KEYS    1 epoch, 2 lanes, 3 floor, 4 fence, then of each of G segments: its states, its tries;
--         then the lock of each lane (whose waiting list is wait:<lane>)
-- ARGV    1 epoch id, 2 expected Redis time (ms), 3 slack (ms), 4 ttl_ms,
--         5 token, the same for all lanes of the call, 6 '1' if messages carry a business id,
--         7 number of fences that one lane may need,
--         8 one byte per lane: number of its messages, plus LW_GATE_ENVELOPES if the call has their
--         envelopes; '' means one message per lane, no envelopes,
--         9 the places of the messages, three bytes each (parts/groups.lua),
--         10 G, then of each segment: topic:partition, its number, first and last byte to read,
--         then of each message, if it has them: envelope, business id
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or {fence, one letter per message (LW_GATED in
--         queue/codes.h), tries}
--         fence: the i-th message that is granted in a lane has fence + i, counted from 0
--         tries: for each granted message that had attempts before, two numbers: its place among
--         the granted messages (from 1) and its number of attempts
-- Order of writes: locks come first, so that the call finds its token in them if it is sent again.
-- A lane is added to `lanes` before its waiting list exists. States of waiting messages are written
-- after their list.
-- @fences @locks @groups @envelopes @lanes @grants
local id, expected, slack, ttl, token, with_dedup, reserve, counts, places, n_groups =
    ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8],
    ARGV[9], tonumber(ARGV[10])
local why = refuse(id, expected, slack)
if why then return why end
local lanes, first_key = KEYS[2], 4 + 2 * n_groups
take_groups(n_groups, 5, 11)
local n_lanes = #KEYS - first_key
local waiting = who_waits(lanes, first_key, n_lanes)
local place, size, arg = bytes_of(places), counts ~= '' and bytes_of(counts) or nil,
    11 + 4 * n_groups
take_fences(reserve)
local value, fence = token .. ':' .. text(fence_base), fence_base
local some_paused = call('EXISTS', P .. 'paused') == 1
local out, m = {}, 0

-- Decides who holds a lane whose lock exists or may exist. Returns 'mine' if this call holds its
-- lock, 'bad' if the key of the lock has another type, and otherwise 'taken'.
local function whose_is(key, held)
    if type(held) == 'table' then return 'bad' end
    if not is_mine(held, token) then return 'taken' end
    call('SET', key, value, 'PX', ttl) -- this call was sent before, and its answer was lost
    return 'mine'
end

local function park(i, key, parked)
    local envelopes = {}
    for k, p in ipairs(parked) do envelopes[k] = p[4] end
    local lane = lane_of(key)
    -- the lane must be in `lanes` before its list exists
    local listed = not (waiting and waiting[i])
    if listed then call('ZADD', lanes, 'NX', text(now + math.max(lock_left(key), 0)), lane) end
    local pushed = pcall_('LPUSH', P .. 'wait:' .. lane, unpack(envelopes))
    local ok = type(pushed) ~= 'table'
    for _, p in ipairs(parked) do
        out[p[1]] = ok and 'LW_GATED_WAITS' or 'LW_GATED_BAD'
        if ok then put_state(p[2], p[3], LW_STATE_WAITING) end
    end
    if listed and not ok then
        call('ZREM', lanes, lane)
    elseif ok and not listed and pushed == #envelopes then
        -- the list had vanished: the lane was in `lanes`, but its list was empty before this push
        list_vanished(lane)
    end
end

-- Returns true if the lane still has a waiting list. If the list has vanished, no message waits in
-- it, even if the recorded state of a message is "waiting".
local function still_waits(i, key)
    return (waiting and waiting[i]) or call('EXISTS', P .. 'wait:' .. lane_of(key)) == 1
end

for i = 1, n_lanes do
    local key = KEYS[first_key + i]
    local whose, parked, stop, count, with_envelope, told = nil, nil, false,
        size and size[i] or 1, false, false
    if count >= LW_GATE_ENVELOPES then count, with_envelope = count - LW_GATE_ENVELOPES, true end
    for _ = 1, count do
        m = m + 1
        local envelope, dedup = nil, ''
        if with_envelope then envelope, arg = ARGV[arg], arg + 1 end
        if with_dedup then dedup, arg = ARGV[arg], arg + 1 end
        local s, index = groups[place[3 * m - 2]], place[3 * m - 1] * 256 + place[3 * m]
        local offset, state = s.base + index, get_state(s, index)
        if state >= LW_STATE_DONE or offset < s.floor then
            out[m] = 'LW_GATED_FINISHED'
        elseif stop then
            out[m] = 'LW_GATED_UNDECIDED'
        elseif state == LW_STATE_WAITING and whose ~= 'mine' and still_waits(i, key) then
            out[m] = 'LW_GATED_WAITS'
            -- this message waits in the list, so the later messages of the lane must wait too
            whose = 'taken'
        elseif with_dedup and is_duplicate(dedup, s.tp, offset) then
            put_state(s, index, LW_STATE_DONE)
            out[m] = 'LW_GATED_DUPLICATE'
        elseif whose == 'mine' then
            -- waiting messages are granted as well: a new owner parked them after this call was
            -- first sent
            out[m] = 'LW_GATED_ALSO'
            grant(s.tp, offset, s)
        else
            -- the recorded state is "waiting", but the list has vanished, so the message counts as
            -- new
            if state == LW_STATE_WAITING and not told then
                list_vanished(lane_of(key))
                told = true
            end
            if not whose then
                local held
                if (some_paused and is_paused(key)) or (waiting and waiting[i]) then
                    held = pcall_('GET', key)
                    whose = held and whose_is(key, held) or 'taken'
                else
                    held = pcall_('SET', key, value, 'NX', 'PX', ttl, 'GET')
                    whose = held and whose_is(key, held) or 'mine'
                end
            end
            if whose == 'mine' then
                out[m] = 'LW_GATED_RUN'
                grant(s.tp, offset, s)
                -- the next message may be a duplicate of this one, so this call leaves it undecided
                stop = with_dedup
            elseif whose == 'bad' then
                out[m] = 'LW_GATED_BAD'
                stop = true
            elseif not envelope then
                out[m], stop = 'LW_GATED_ENVELOPE', true
            else
                parked = parked or {}
                parked[#parked + 1] = {m, s, index, envelope}
            end
        end
    end
    if parked then park(i, key, parked) end
end
save_states()
return {text(fence), table.concat(out), tries_out}
