#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- settle: what became of messages, and who goes on in their lanes.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, 5 ready, 6 dead, then G × (state segment, tries segment), then the lock of each lane; its list is
--      wait:<lane>
-- ARGV 1 epoch id, 2 ttl_ms, 3 handoff_ms, 4 retry.order 'block' or 'skip', 5 dedup window s, '' where messages carry no dedup id, 6 how
--      many fences a lane may need, 7 "LANE CALL MET", bounds in bytes as in claim, 8 the lanes' items, seven bytes each (below), 9 the
--      messages' places, three bytes each (parts/groups.lua), 10 G, then G × (topic:partition, number of its segment, first and last byte to read at
--      once), 11 + 4G how many locks' values follow, then those, then what the items need
-- An item: which value, from 0, its lock has while it is ours; how many messages finished, in order; what became of the last of them (those
--      before it are done); how to go on; how many messages are named behind them; how many heads are wanted, of 'n' one
--      at least; how many stand before those
--   'd' done; 'r' retry, counts a try: backoff_ms, envelope; 'b' back, counts none: backoff_ms, envelope; 'x' dead: reason, envelope; 's' dead and sent to its topic
--   nothing of the lease runs any more: 'k' keep it for the named messages of the local chain; 'K' the same, unless others wait; 'n' hand
--      heads over; '-' drop it
--   something does: 'm' name more of the local chain; 'h' hand over more heads, those behind the one that is named
--   What an item needs stands in this order: what the last message needs; with dedup ids, those of the finished, then of the named
-- Result: 'LOST', 'QUARANTINE', or {fence, a letter an item, a letter a named message, duplicates dropped, tries, heads, how many heads each
--      item was given, a byte each}; the i-th message granted to an item has fence + i, from 0; tries as in gate, over all grants in order
--   S stale: the lease is no longer ours; of what is done only the first was recorded: whoever has the lane now runs it again and those behind
--     it, in order   L released   K kept or extended   N heads are handed over
--   B released, but the message could not be put back, since the name of its list holds another type
--   named: A granted   P finished already   G not decided; all G where the lease is not kept
-- Order of writes: dead letters and business ids, states, tries that end, lists, states of what was put back, locks, and last the tries that
-- count. Each item is looked at twice: record, then, when its states are in Redis, go_on.
-- @fences @locks @groups @heads @grants @hints
local id, ttl, handoff, skip, with_dedup, window, reserve, items, places, n_groups = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == 'skip',
    ARGV[5] ~= '', tonumber(ARGV[5] ~= '' and ARGV[5] or 0), tonumber(ARGV[6]), ARGV[8], ARGV[9], tonumber(ARGV[10])
local why = refuse(id, '', 0)
if why then return why end
local lanes, ready, dead, first_key = KEYS[2], KEYS[5], KEYS[6], 6 + 2 * n_groups
take_bounds(ARGV[7])
take_groups(n_groups, 7, 11)
local n = #KEYS - first_key
local first_value = 12 + 4 * n_groups
local arg = first_value + tonumber(ARGV[first_value - 1])
local held = call('MGET', unpack(KEYS, first_key + 1))
local waiting = who_waits(lanes, first_key, n)
local item, place = bytes_of(items), bytes_of(places)
local at = 1 -- in the places
local until_ms = now + tonumber(ttl)

-- the letters of an item, as bytes
local DONE, RETRY, BACK, DEAD, SENT = byte('drbxs', 1, -1)
local KEEP, KEEP_ALONE, NEXT, DROP, NAME_MORE, HAND_MORE = byte('kKn-mh', 1, -1)

local function take_place()
    local s, index = groups[place[at]], place[at + 1] * 256 + place[at + 2]
    at = at + 3
    return s, index
end
local function take_arg()
    arg = arg + 1
    return ARGV[arg - 1]
end
local function holds(value, mine) -- a gate that was sent twice may have written another fence
    if value == mine then return true end
    return value and is_mine(value, string.match(mine, '^(.*):%d+$') or mine)
end

local out, named_out, heads_each = {}, {}, {}
-- What is done only once all states are in Redis: locks that are deleted or become a backoff, tries that are forgotten or counted.
local free, backoffs, forgotten, tried_again = {}, {}, {}, {}
local function release(lock, lane, hinted)
    free[#free + 1] = lock
    if hinted then hint(lane, now + handoff) end
    return 'L'
end
local function forget_later(s, index)
    if s.has_tries then forgotten[#forgotten + 1] = {s.tp, s.base + index} end
end

-- The message goes to the head of its list, for a retry or for whoever comes next. The lane stands in `lanes` before its list exists.
local function put_back(outcome, lock, s, index, backoff, envelope)
    local lane, offset = lane_of(lock), s.base + index
    local wait = P .. 'wait:' .. lane
    call_left = math.max(call_left, 1) -- reads at least one page in any case; the caller limits how many are put back
    local head, head_tp, head_offset = first_unfinished(lane)
    local tp, bad = s.tp, head == 'BAD'
    local rotate = skip and backoff > 0 and outcome == 'r'
    local rests = backoff > 0 and not rotate
    if not bad then
        call('ZADD', lanes, text(now + (rests and backoff or handoff)), lane)
        if not (head_tp == tp and head_offset == offset) then call('RPUSH', wait, envelope) end
        put_state(s, index, 1)
    end
    if outcome == 'r' then
        local tried, first = tries_of(tp, offset)
        tried_again[#tried_again + 1] = {tp, offset, tried + 1, first > 0 and first or now, rotate and backoff or 0}
        s.has_tries = true
    end
    if bad then
        free[#free + 1] = lock
        return 'B'
    end
    if rotate then call('RPOPLPUSH', wait, wait) end
    if rests then
        backoffs[#backoffs + 1] = {lock, backoff}
    else
        call('LPUSH', ready, lane)
        free[#free + 1] = lock
    end
    return 'L'
end

local function die(s, index, reason, envelope)
    local offset = s.base + index
    local tried, first = tries_of(s.tp, offset)
    if envelope then
        call('XADD', dead, '*', 'envelope', envelope, 'reason', reason, 'attempts', text(tried + 1), 'first_ms', text(first > 0 and first or now),
            'last_ms', text(now))
    end
    put_state(s, index, 3)
    forget_later(s, index)
end

-- The lease is kept: which of the named may run?
local function grant_named(count, ids)
    for k = 1, count do
        local s, index = take_place()
        local offset = s.base + index
        local over = offset < s.floor or get_state(s, index) >= 2
        if not over and ids and is_duplicate(ids[k], s.tp, offset) then
            put_state(s, index, 2)
            finish_unsaved = true
            duplicates = duplicates + 1
            over = true
        end
        named_out[#named_out + 1] = over and 'P' or 'A'
        if not over then grant(s.tp, offset, s) end
    end
end
local function grant_none(count)
    for _ = 1, count do named_out[#named_out + 1] = 'G' end
    at = at + 3 * count
end

-- What became of the messages of an item. What its lane needs is left for go_on, which comes when all this is in Redis.
local function record(i, o)
    local mine, count, outcome, named = ARGV[first_value + item[o]], item[o + 1], item[o + 2], item[o + 4]
    local is_held, first_place, s, index = holds(held[i], mine), at, nil, nil
    for k = 1, count do
        s, index = take_place()
        if (k < count or outcome == DONE) and (is_held or k == 1) then -- the effect has happened, whoever holds the lease now
            if s.base + index >= s.floor then put_state(s, index, 2) end
            forget_later(s, index)
        end
    end
    local backoff, reason, envelope
    if outcome == RETRY or outcome == BACK then
        backoff, envelope = tonumber(take_arg()), take_arg()
    elseif outcome == DEAD then
        reason, envelope = take_arg(), take_arg()
    end
    local ids = nil
    if with_dedup then
        for k = 0, count - 1 do
            local dedup = take_arg()
            if dedup ~= '' and window > 0 and (k < count - 1 or outcome == DONE) and (is_held or k == 0) then
                local p = first_place + 3 * k
                local g = groups[place[p]]
                call('SET', P .. 'dedup:' .. dedup, g.tp .. ':' .. text(g.base + place[p + 1] * 256 + place[p + 2]), 'EX', window, 'NX')
            end
        end
        ids = {}
        for k = 1, named do ids[k] = take_arg() end
    end
    if is_held and outcome ~= DONE and count > 0 and (s.base + index < s.floor or get_state(s, index) >= 2) then outcome = DONE end -- never down
    if is_held and (outcome == DEAD or outcome == SENT) then die(s, index, reason, envelope) end
    return {o = o, at = at, is_held = is_held, s = s, index = index, outcome = outcome, backoff = backoff, envelope = envelope, ids = ids}
end

-- Who goes on in the lane of an item.
local function go_on(i, r)
    local o, is_held, s, index, outcome = r.o, r.is_held, r.s, r.index, r.outcome
    local count, mode, named, want, before = item[o + 1], item[o + 3], item[o + 4], item[o + 5], item[o + 6]
    local lock = KEYS[first_key + i]
    at = r.at
    local answer, given = nil, 0
    if not is_held then
        answer = 'S'
        grant_none(named)
    else
        if outcome == RETRY or outcome == BACK then
            answer = put_back(outcome == RETRY and 'r' or 'b', lock, s, index, r.backoff, r.envelope)
            grant_none(named)
        elseif not (waiting and waiting[i]) and (mode == NEXT or mode == DROP) then
            free[#free + 1] = lock
            answer = 'L'
            grant_none(named)
        else
            local stop = mode ~= DROP and is_paused(lock)
            local lane, heads, due = nil, nil, nil
            if waiting and waiting[i] then
                lane = lane_of(lock)
                if before >= count and count > 0 and call_left > 0 then -- heads were handed over: are the last `count` elements just those that finished?
                    local tp, offset = nil, nil
                    local last = pcall_('LINDEX', P .. 'wait:' .. lane, -count)
                    if type(last) == 'string' then
                        tp, offset = identity_of(last)
                        count_read(last)
                    end
                    if tp == s.tp and offset == s.base + index then
                        call('LTRIM', P .. 'wait:' .. lane, 0, -1 - count)
                        before, trimmed = before - count, true
                    end
                end
                if mode == HAND_MORE and want > 0 then
                    local last, last_index = nil, nil
                    if named > 0 then last, last_index = take_place() end
                    named_out[#named_out + 1] = named > 0 and 'G' or nil
                    heads = take_heads(lane, want, before, last and last.tp, last and last.base + last_index)
                elseif mode == NEXT then
                    heads, due = runnable_heads(lane, skip, want, before)
                else
                    heads = take_heads(lane, 1, 0)
                    if mode == HAND_MORE then -- none is wanted now
                        grant_none(named)
                        if type(heads) == 'table' then heads = {} end
                    end
                end
            elseif mode == HAND_MORE then
                grant_none(named)
            end
            if mode == HAND_MORE or mode == NAME_MORE or ((mode == KEEP or (mode == KEEP_ALONE and not heads)) and not stop) then
                call('PEXPIRE', lock, ttl)
                if heads and heads ~= 'BAD' then call('ZADD', lanes, text(until_ms), lane) end
                answer = 'K'
                if mode == HAND_MORE then
                    if type(heads) == 'table' and not stop then given = grant_heads(heads) end
                elseif stop then
                    grant_none(named)
                else
                    grant_named(named, r.ids)
                end
            else
                grant_none(named)
                if not heads or heads == 'BAD' then
                    free[#free + 1] = lock
                    answer = 'L'
                elseif heads == 'UNDUE' then
                    backoffs[#backoffs + 1] = {lock, math.max(due - now, 1)}
                    call('ZADD', lanes, text(due), lane)
                    answer = 'L'
                elseif mode == NEXT and not stop and heads ~= 'MORE' then
                    call('PEXPIRE', lock, ttl)
                    call('ZADD', lanes, text(until_ms), lane)
                    given = grant_heads(heads)
                    answer = 'N'
                else
                    if stop then call('ZADD', lanes, text(until_ms), lane) end
                    answer = release(lock, lane, not stop)
                end
            end
        end
    end
    out[i] = answer
    heads_each[i] = given
end

local lanes_left = {}
for i = 1, n do
    local o = 7 * i - 6
    local mode = item[o + 3]
    if item[o + 1] == 1 and item[o + 2] == DONE and (mode == NEXT or mode == DROP) and item[o + 4] == 0 and not (waiting and waiting[i]) and
        not with_dedup and held[i] == ARGV[first_value + item[o]] then -- as most are: one message, done, and nobody waits
        local s, index = groups[place[at]], place[at + 1] * 256 + place[at + 2]
        at = at + 3
        if s.base + index >= s.floor then put_state(s, index, 2) end
        forget_later(s, index)
        free[#free + 1] = KEYS[first_key + i]
        out[i], heads_each[i] = 'L', 0
    else
        lanes_left[i] = record(i, o)
        at = at + 3 * item[o + 4]
    end
end
save_states()
for _, m in ipairs(forgotten) do forget_tries(m[1], m[2]) end
for i = 1, n do
    if lanes_left[i] then go_on(i, lanes_left[i]) end
end
save_states() -- what was put back waits
for _, b in ipairs(backoffs) do set_backoff(b[1], b[2]) end
if #free > 0 then call('DEL', unpack(free)) end
for _, m in ipairs(tried_again) do set_tries(unpack(m)) end
if n_grants > 0 then take_fences(reserve) end
return {fence_base and text(fence_base) or '0', table.concat(out), table.concat(named_out), duplicates, tries_out, heads_out,
    string.char(unpack(heads_each))}
