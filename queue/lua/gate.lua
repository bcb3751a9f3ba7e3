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
--         9 the places of the messages, three bytes each (parts/places.lua),
--         10 G, then of each segment: topic:partition, its number, first and last byte to read,
--         then of each lane that has envelopes its group: '' if no limit of a group concerns it,
--         =NAME, or !NAME if the messages must wait even if the lane is free;
--         and of each of its messages, if it has them: envelope, business id
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or {fence, one letter per message (LW_GATED in
--         queue/codes.h), tries}
--         fence: the i-th message that is granted in a lane has fence + i, counted from 0
--         tries: for each granted message that failed before, three numbers: its place among the
--         granted messages (from 1), its number of attempts, and when it first failed
-- Order of writes: locks come first, so that the call finds its token in them if it is sent again.
-- A lane is added to `lanes` before its waiting list exists. States of waiting messages are written
-- after their list.
-- A lane whose messages are all new and that nobody has is decided at once. Only if there are other
-- lanes, the call goes on behind the first return, because each function costs time to make.
-- A lone message (of one lane, without envelope and business id) is admitted at once if it is new,
-- nobody has its lane, and the shard has no lanes with waiters, no pauses, and no tries in its
-- segment. This short way makes no functions and few tables, which is most of the cost of a small
-- call. In every other case the call goes on below, as if nothing had happened here: a lock that
-- was found taken was not changed, and the fences that were taken are not used.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
if #KEYS == 7 and ARGV[8] == '' and ARGV[6] ~= '1' then
    local time = call('TIME')
    local epoch = call('HMGET', KEYS[1], 'id', 'not_before', 'first')
    local now = math.floor(time[1] * 1000 + time[2] / 1000)
    if epoch[1] == ARGV[1] and not epoch[3] and now >= tonumber(epoch[2] or 0)
            and math.abs(now - ARGV[2]) <= tonumber(ARGV[3])
            and call('EXISTS', KEYS[2], string.sub(KEYS[1], 1, -6) .. 'paused', KEYS[6]) == 0 then
        local _, high, low = string.byte(ARGV[9], 1, 3)
        local index = high * 256 + low
        local at, shift = math.floor(index / 4), 4 ^ (3 - index % 4)
        local four = string.byte(call('GETRANGE', KEYS[5], at, at)) or 0
        local state = math.floor(four / shift) % 4
        local offset = ARGV[12] * LW_SEGMENT + index
        if state == LW_STATE_UNSEEN and offset >= tonumber(call('HGET', KEYS[3], ARGV[11]) or 0)
        then
            local base = math.max((call('GET', KEYS[4]) or 0) + 1, time[1] * 1000000 + time[2])
            local fence = string.format('%.0f', base)
            call('SET', KEYS[4], string.format('%.0f', base + ARGV[7] - 1))
            local value = ARGV[5] .. ':' .. fence
            if not redis.pcall('SET', KEYS[7], value, 'NX', 'PX', ARGV[4], 'GET') then
                return {fence, 'LW_GATED_RUN', {}}
            end
        end
    end
end
-- @fences @places
local id, expected, slack, ttl, token, with_dedup, reserve, counts, n_segments =
    ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8],
    tonumber(ARGV[10])
local why = refuse(id, expected, slack)
if why then return why end
local lanes, first_key = KEYS[2], 4 + 2 * n_segments
take_places(n_segments, 5, 11)
take_fences(reserve)
local fence = text(fence_base)
local value = token .. ':' .. fence
local plain = not with_dedup and not any_paused and not any_tries
local out, left, m, arg = {}, {}, 0, 11 + 4 * n_segments
for i = 1, #KEYS - first_key do
    local key, count = KEYS[first_key + i], counts ~= '' and byte(counts, i) or 1
    local with_envelope = count >= LW_GATE_ENVELOPES
    if with_envelope then count = count - LW_GATE_ENVELOPES end
    local parks = with_envelope and byte(ARGV[arg]) == 33 -- '!'
    local fresh = plain and not parks and not (waiting and waiting[i])
    for k = 1, fresh and count or 0 do
        local s, index = place(m + k)
        fresh = fresh and get_state(s, index) == LW_STATE_UNSEEN and s.base + index >= s.floor
    end
    local held = fresh and pcall_('SET', key, value, 'NX', 'PX', ttl, 'GET')
    if fresh and not held then
        for k = 1, count do out[m + k] = k == 1 and 'LW_GATED_RUN' or 'LW_GATED_ALSO' end
    else
        left[#left + 1] = {i = i, key = key, m = m, count = count, arg = arg, held = held,
            with_envelope = with_envelope, parks = parks}
    end
    m = m + count
    arg = arg + count * ((with_envelope and 1 or 0) + (with_dedup and 1 or 0))
        + (with_envelope and 1 or 0)
end
if #left == 0 then return {fence, table.concat(out), {}} end

-- @locks @envelopes @lanes @hints @grants
-- Decides who holds a lane whose lock exists or may exist. Returns 'mine' if this call holds its
-- lock, 'bad' if the key of the lock has another type, and otherwise 'taken'.
local function whose_is(key, held)
    if type(held) == 'table' then return 'bad' end
    if not is_mine(held, token) then return 'taken' end
    call('SET', key, value, 'PX', ttl) -- this call was sent before, and its answer was lost
    return 'mine'
end

-- Takes a lane, unless it is paused, messages wait in it, or its messages must wait: then only a
-- call that was sent before has it. Returns the same as whose_is().
local function take_lane(l)
    if l.parks or (any_paused and is_paused(l.key)) or (waiting and waiting[l.i]) then
        l.held = pcall_('GET', l.key)
        return l.held and whose_is(l.key, l.held) or 'taken'
    end
    local held = l.held or pcall_('SET', l.key, value, 'NX', 'PX', ttl, 'GET')
    return held and whose_is(l.key, held) or 'mine'
end

local function park(l, parked)
    local envelopes, lane = {}, lane_of(l.key)
    for k, p in ipairs(parked) do envelopes[k] = p[4] end
    -- the lane must be in `lanes` before its list exists
    local listed = not (waiting and waiting[l.i])
    if listed then
        call('ZADD', lanes, 'NX', text(now + math.max(lock_left(l.key), 0)), lane)
        set_group(lane, l.group)
    end
    local pushed = pcall_('LPUSH', P .. 'wait:' .. lane, unpack(envelopes))
    local ok = type(pushed) ~= 'table'
    for _, p in ipairs(parked) do
        out[p[1]] = ok and 'LW_GATED_WAITS' or 'LW_GATED_BAD'
        if ok then put_state(p[2], p[3], LW_STATE_WAITING) end
    end
    if listed and not ok then
        forget_lane(lane)
    elseif ok and not listed and pushed == #envelopes then
        -- the list had vanished: the lane was in `lanes`, but its list was empty before this push
        list_vanished(lane)
    elseif ok and is_undue(l.held) then
        -- what has waited is not due yet, but what came now is: tend examines the lane soon
        call('DEL', l.key)
        call('ZADD', lanes, text(now), lane)
    elseif ok and l.parks and listed and not l.held and not is_paused(l.key) then
        hint(lane, now)
    end
end

-- Returns true if the lane still has a waiting list. If the list has vanished, no message waits in
-- it, even if the recorded state of a message is "waiting".
local function still_waits(l)
    return (waiting and waiting[l.i]) or call('EXISTS', P .. 'wait:' .. lane_of(l.key)) == 1
end

-- Decides the messages of a lane, in order. `whose` is nil until the lane is known to be 'mine',
-- 'taken' or 'bad'; it is 'over' when nothing more is decided.
local function decide(l)
    local whose, parked, told = nil, {}, false
    if l.with_envelope then l.group, l.arg = ARGV[l.arg], l.arg + 1 end
    for k = l.m + 1, l.m + l.count do
        local envelope, dedup = nil, ''
        if l.with_envelope then envelope, l.arg = ARGV[l.arg], l.arg + 1 end
        if with_dedup then dedup, l.arg = ARGV[l.arg], l.arg + 1 end
        local s, index = place(k)
        local offset, state = s.base + index, get_state(s, index)
        if state >= LW_STATE_DONE or offset < s.floor then
            out[k] = 'LW_GATED_FINISHED'
        elseif whose == 'over' then
            out[k] = 'LW_GATED_UNDECIDED'
        elseif state == LW_STATE_WAITING and whose ~= 'mine' and still_waits(l) then
            -- this message waits in the list, so the later messages of the lane must wait too
            out[k], whose = 'LW_GATED_WAITS', 'taken'
        elseif with_dedup and is_duplicate(dedup, s.tp, offset) then
            put_state(s, index, LW_STATE_DONE)
            out[k] = 'LW_GATED_DUPLICATE'
        elseif whose == 'mine' then
            -- waiting messages are granted as well: a new owner parked them after this call was
            -- first sent
            out[k] = 'LW_GATED_ALSO'
            grant(s.tp, offset, s)
        else
            -- the recorded state is "waiting", but the list has vanished, so the message counts as
            -- new
            if state == LW_STATE_WAITING and not told then
                list_vanished(lane_of(l.key))
                told = true
            end
            whose = whose or take_lane(l)
            if whose == 'mine' then
                out[k] = 'LW_GATED_RUN'
                grant(s.tp, offset, s)
                -- the next message may be a duplicate of this one, so this call leaves it undecided
                if with_dedup then whose = 'over' end
            elseif whose == 'bad' then
                out[k], whose = 'LW_GATED_BAD', 'over'
            elseif not envelope then
                out[k], whose = 'LW_GATED_ENVELOPE', 'over'
            else
                parked[#parked + 1] = {k, s, index, envelope}
            end
        end
    end
    if #parked > 0 then park(l, parked) end
end

for _, l in ipairs(left) do decide(l) end
save_states()
return {fence, table.concat(out), tries_out}
