#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- settle: records the outcomes of messages and decides how each lane continues.
-- KEYS    1 epoch, 2 lanes, 3 floor, 4 fence, 5 ready, 6 dead, then of each of G segments: its
--         states, its tries; then the lock of each lane (whose waiting list is wait:<lane>)
-- ARGV    1 epoch id, 2 ttl_ms, 3 handoff_ms, 4 retry.order: 'block' or 'skip',
--         5 dedup window (s), or '' if messages carry no business id,
--         6 number of fences that one lane may need,
--         7 three numbers of bytes, "LANE CALL MET", as in claim,
--         8 one item of seven bytes per lane (below),
--         9 the places of the messages, three bytes each (parts/places.lua),
--         10 G, then of each segment: topic:partition, its number, first and last byte to read,
--         11 + 4G number of lock values, then the values, then the arguments of the items
-- Item:   index (from 0) of the value that the lane's lock has while the caller holds it; number of
--         settled messages; outcome of the last settled message (all others are done); how the lane
--         continues; number of named messages; number of heads wanted (at least 1 for LW_GO_NEXT);
--         number of list elements before the wanted heads. queue/codes.h explains the letters. The
--         arguments of an item are those for its last settled message (for LW_RETRY, LW_LATER and
--         LW_BACK: backoff_ms, envelope, group as in gate; for LW_DEAD: reason, envelope), then, if
--         messages carry business ids, the ids of the settled and of the named messages. In ARGV 9,
--         the settled messages of an item come before its named messages.
-- Result: 'LOST', 'QUARANTINE', or {fence, one letter per item (LW_SETTLED), one letter per named
--         message (LW_NAMED), number of duplicates dropped, tries, heads, one byte per item: number
--         of heads that are handed over}
--         fence: the i-th message that is granted to an item has fence + i, counted from 0
--         tries: as in gate, over all grants in order
-- If an item is stale, at most the first of its done messages was recorded, and the lane's next
-- holder runs the others again, in order.
-- Order of writes: dead letters and business ids; states; deletion of the tries of finished
-- messages; lists; states of messages that were put back; locks; tries of messages that failed.
-- The most frequent item, one message that is done and behind which nothing waits, is settled at
-- once. Only if there are other items, the call goes on behind the first return, because each
-- function costs time to make. Each of these items is handled twice: by record(), and, when its
-- states are in Redis, by go_on().
-- A lone message (one item of one message, without business id) that is done is settled at once if
-- the lock is the caller's, and the shard has no lanes with waiters, no pauses, and no tries in the
-- segment. This needs no time: a lock that the caller holds in this epoch was granted after the
-- quarantine. The floor only keeps a deleted segment from being made again, so it is not read where
-- the segment exists. In every other case the call goes on below, and nothing was written.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
if #KEYS == 9 and ARGV[10] == '1' and ARGV[5] == '' then
    local _, count, outcome, go, named = string.byte(ARGV[8], 1, 5)
    local lock, states, tp = KEYS[9], KEYS[7], ARGV[11]
    local epoch = call('HMGET', KEYS[1], 'id', 'first')
    if count == 1 and named == 0 and outcome == LW_DONE and (go == LW_GO_NEXT or go == LW_GO_DROP)
            and epoch[1] == ARGV[1] and not epoch[2] and not string.find(tp, '#', 1, true)
            and call('MGET', lock)[1] == ARGV[16]
            and call('EXISTS', KEYS[2], string.sub(KEYS[1], 1, -6) .. 'paused', KEYS[8]) == 0 then
        local _, high, low = string.byte(ARGV[9], 1, 3)
        local index = high * 256 + low
        local at, shift = math.floor(index / 4), 4 ^ (3 - index % 4)
        local text = call('GETRANGE', states, math.max(at - 1, 0), at)
        local four = string.byte(text, math.min(at, 1) + 1) or 0
        local state = math.floor(four / shift) % 4
        if state < LW_STATE_DONE and (text ~= '' or ARGV[12] * LW_SEGMENT + index
                >= tonumber(call('HGET', KEYS[3], tp) or 0)) then
            call('SETRANGE', states, at, string.char(four + (LW_STATE_DONE - state) * shift))
        end
        call('DEL', lock)
        return {'0', 'LW_SETTLED_RELEASED', '', 0, {}, {}, '\0'}
    end
end
-- @changes @places
local id, ttl, with_dedup, items, n_segments = ARGV[1], ARGV[2], ARGV[5] ~= '', ARGV[8],
    tonumber(ARGV[10])
local why = refuse(id, '', 0)
if why then return why end
local first_key, first_value = 6 + 2 * n_segments, 12 + 4 * n_segments
take_places(n_segments, 7, 11)
local n, at = #KEYS - first_key, 1 -- at: number of the next message's place
local held = call('MGET', unpack(KEYS, first_key + 1))
local out, free, left = {}, {}, {}
for i = 1, n do
    local mine, count, outcome, mode, named, want, before = byte(items, 7 * i - 6, 7 * i)
    mine = ARGV[first_value + mine]
    if count == 1 and named == 0 and outcome == LW_DONE
            and (mode == LW_GO_NEXT or mode == LW_GO_DROP) and held[i] == mine
            and not (with_dedup or any_tries or waiting and waiting[i]) then
        local s, index = place(at)
        if s.base + index >= s.floor then put_state(s, index, LW_STATE_DONE) end
        out[i], free[#free + 1] = 'LW_SETTLED_RELEASED', KEYS[first_key + i]
    else
        left[#left + 1] = {i = i, lock = KEYS[first_key + i], mine = mine, at = at, count = count,
            outcome = outcome, mode = mode, named = named, want = want, before = before}
    end
    at = at + count + named
end
if #left == 0 then
    save_states()
    call('DEL', unpack(free))
    return {'0', table.concat(out), '', 0, {}, {}, string.rep('\0', n)}
end

-- @fences @locks @heads @grants @hints
local handoff, skip, window, reserve = tonumber(ARGV[3]), ARGV[4] == 'skip',
    tonumber(with_dedup and ARGV[5] or 0), tonumber(ARGV[6])
local lanes, dead = KEYS[2], KEYS[6]
local until_ms, arg = now + tonumber(ttl), first_value + tonumber(ARGV[first_value - 1])
take_bounds(ARGV[7])
local function take_place()
    at = at + 1
    return place(at - 1)
end
local function take_arg()
    arg = arg + 1
    return ARGV[arg - 1]
end
-- Returns true if the value of a lock is the caller's. The fence in the value may differ, because a
-- gate call that was sent again may have written another fence.
local function holds(value, mine)
    if value == mine then return true end
    return value and is_mine(value, string.match(mine, '^(.*):%d+$') or mine)
end

local named_out, heads_each = {}, {}
-- The lists `free`, `backoffs`, `undue`, `forgotten` and `tried_again` collect the writes that must
-- follow the states: locks to delete or to turn into a backoff, and tries to forget or to set.
local backoffs, undue, forgotten, tried_again = {}, {}, {}, {}
local function forget_later(s, index)
    if s.has_tries then forgotten[#forgotten + 1] = {s.tp, s.base + index} end
end

-- Puts a message back at the head of its waiting list, for a retry or for the next holder. The lane
-- is added to `lanes` before its list exists, so that tend finds the list even if only the first
-- writes survive a crash.
local function put_back(r)
    local lock, s, index, backoff = r.lock, r.s, r.index, r.backoff
    local lane, offset = lane_of(lock), s.base + index
    local wait = P .. 'wait:' .. lane
    -- Allow the next read even if the call has reached its limit of bytes. These additional reads
    -- are few, because the worker limits the number of messages that a call puts back.
    call_left = math.max(call_left, 1)
    local head, head_tp, head_offset = first_unfinished(lane)
    local tp, bad = s.tp, head == 'BAD'
    local failed = r.outcome == LW_RETRY or r.outcome == LW_LATER
    local rotate = skip and backoff > 0 and failed
    local rests = backoff > 0 and not rotate
    if not bad then
        call('ZADD', lanes, text(now + (rests and backoff or handoff)), lane)
        if not rotate then set_group(lane, r.group) end
        if not (head_tp == tp and head_offset == offset) then call('RPUSH', wait, r.envelope) end
        put_state(s, index, LW_STATE_WAITING)
    end
    if failed then
        local tried, first = tries_of(tp, offset)
        if r.outcome == LW_RETRY then tried = tried + 1 end
        tried_again[#tried_again + 1] =
            {tp, offset, tried, first > 0 and first or now, rotate and backoff or 0}
        s.has_tries = true
    end
    if bad then
        free[#free + 1] = lock
        return 'LW_SETTLED_BAD'
    end
    if rotate then call('RPOPLPUSH', wait, wait) end
    if rests then
        backoffs[#backoffs + 1] = {lock, backoff}
    else
        push_ready(lane)
        free[#free + 1] = lock
    end
    return 'LW_SETTLED_RELEASED'
end

local function die(s, index, reason, envelope)
    local offset = s.base + index
    local tried, first = tries_of(s.tp, offset)
    if envelope then
        call('XADD', dead, '*', 'envelope', envelope, 'reason', reason, 'attempts', text(tried + 1),
            'first_ms', text(first > 0 and first or now), 'last_ms', text(now))
    end
    put_state(s, index, LW_STATE_DEAD)
    forget_later(s, index)
end

-- Decides which of the named messages may run under the lease. Called only if settle keeps the
-- lease.
local function grant_named(count, ids)
    for k = 1, count do
        local s, index = take_place()
        local offset = s.base + index
        local over = offset < s.floor or get_state(s, index) >= LW_STATE_DONE
        if not over and ids and is_duplicate(ids[k], s.tp, offset) then
            put_state(s, index, LW_STATE_DONE)
            finish_unsaved = true
            duplicates = duplicates + 1
            over = true
        end
        named_out[#named_out + 1] = over and 'LW_NAMED_FINISHED' or 'LW_NAMED_GRANTED'
        if not over then grant(s.tp, offset, s) end
    end
end
local function grant_none(count)
    for _ = 1, count do named_out[#named_out + 1] = 'LW_NAMED_UNDECIDED' end
    at = at + count
end

-- Records the outcomes of an item. The writes for its lane are left to go_on(), which runs when all
-- states are in Redis.
local function record(r)
    local is_held, count, outcome, s, index = holds(held[r.i], r.mine), r.count, r.outcome, nil, nil
    at = r.at
    for k = 1, count do
        s, index = take_place()
        -- The first message that is done is recorded no matter who holds the lease now, because its
        -- effect has happened. The messages behind it are recorded only under the lease. If the
        -- lease is lost, the next holder runs them again, in order.
        if (k < count or outcome == LW_DONE) and (is_held or k == 1) then
            if s.base + index >= s.floor then put_state(s, index, LW_STATE_DONE) end
            forget_later(s, index)
        end
    end
    local backoff, reason, envelope, group
    if outcome == LW_RETRY or outcome == LW_LATER or outcome == LW_BACK then
        backoff, envelope, group = tonumber(take_arg()), take_arg(), take_arg()
    elseif outcome == LW_DEAD then
        reason, envelope = take_arg(), take_arg()
    end
    local ids = nil
    if with_dedup then
        for k = 0, count - 1 do
            local dedup = take_arg()
            if dedup ~= '' and window > 0 and (k < count - 1 or outcome == LW_DONE)
                    and (is_held or k == 0) then
                local g, g_index = place(r.at + k)
                call('SET', P .. 'dedup:' .. dedup, g.tp .. ':' .. text(g.base + g_index),
                    'EX', window, 'NX')
            end
        end
        ids = {}
        for k = 1, r.named do ids[k] = take_arg() end
    end
    -- a message that was finished before this call stays finished
    if is_held and outcome ~= LW_DONE and count > 0
            and (s.base + index < s.floor or get_state(s, index) >= LW_STATE_DONE) then
        outcome = LW_DONE
    end
    if is_held and (outcome == LW_DEAD or outcome == LW_DEAD_SENT) then
        die(s, index, reason, envelope)
    end
    r.is_held, r.at, r.s, r.index, r.outcome = is_held, at, s, index, outcome
    r.backoff, r.envelope, r.group, r.ids = backoff, envelope, group, ids
end

-- The next functions continue the lane of an item: go_MODE() does so for one mode, keep() keeps the
-- lease, and release() releases the lock. Each returns a letter of LW_SETTLED and, if heads were
-- granted, their number. `lane` is nil if no message waits in the lane. `stop` is true if the lane
-- is paused; then nothing more is granted.
local function keep(r, lane, heads)
    call('PEXPIRE', r.lock, ttl)
    if heads and heads ~= 'BAD' then call('ZADD', lanes, text(until_ms), lane) end
    return 'LW_SETTLED_KEPT'
end
local function release(r, lane, heads, stop)
    free[#free + 1] = r.lock
    if not heads or heads == 'BAD' then return 'LW_SETTLED_RELEASED' end
    if stop then
        call('ZADD', lanes, text(until_ms), lane)
    else
        hint(lane, now + handoff)
    end
    return 'LW_SETTLED_RELEASED'
end

local function go_drop(r, lane)
    grant_none(r.named)
    return release(r, lane, lane and take_heads(lane, 1, 0), false)
end

local function go_keep(r, lane, stop)
    local heads = lane and take_heads(lane, 1, 0)
    if stop or (heads and r.mode == LW_GO_KEEP_ALONE) then
        grant_none(r.named)
        return release(r, lane, heads, stop)
    end
    keep(r, lane, heads)
    grant_named(r.named, r.ids)
    return 'LW_SETTLED_KEPT'
end

local function go_next(r, lane, stop)
    local heads, due = runnable_heads(lane, skip, r.want, r.before)
    grant_none(r.named)
    if heads == 'UNDUE' then
        undue[#undue + 1] = {r.lock, math.max(due - now, 1)}
        call('ZADD', lanes, text(due), lane)
        return 'LW_SETTLED_RELEASED'
    end
    if stop or type(heads) ~= 'table' then return release(r, lane, heads, stop) end
    keep(r, lane, heads)
    return 'LW_SETTLED_NEXT', grant_heads(heads)
end

local function go_named(r, lane, stop)
    keep(r, lane, lane and take_heads(lane, 1, 0))
    if stop then
        grant_none(r.named)
    else
        grant_named(r.named, r.ids)
    end
    return 'LW_SETTLED_KEPT'
end

local function go_heads(r, lane, stop)
    if not lane or r.want == 0 then
        -- no heads can be granted, or none are needed now
        grant_none(r.named)
        return keep(r, lane, lane and take_heads(lane, 1, 0))
    end
    local last, last_index = nil, nil
    if r.named > 0 then
        last, last_index = take_place()
        named_out[#named_out + 1] = 'LW_NAMED_UNDECIDED'
    end
    local heads =
        take_heads(lane, r.want, r.before, last and last.tp, last and last.base + last_index)
    keep(r, lane, heads)
    return 'LW_SETTLED_KEPT', type(heads) == 'table' and not stop and grant_heads(heads) or 0
end

-- If the messages that an item has just finished are the last `count` elements of the waiting list,
-- removes all of them from the list with one command.
local function drop_finished(r, lane)
    local count, s = r.count, r.s
    if count == 0 or r.before < count or call_left <= 0 then return end
    local last = pcall_('LINDEX', P .. 'wait:' .. lane, -count)
    if type(last) ~= 'string' then return end
    local tp, offset = identity_of(last)
    count_read(last)
    if tp == s.tp and offset == s.base + r.index then
        call('LTRIM', P .. 'wait:' .. lane, 0, -1 - count)
        r.before, trimmed = r.before - count, true
    end
end

local function go_on(r)
    local mode, lane = r.mode, nil
    at = r.at
    if not r.is_held then
        grant_none(r.named)
        return 'LW_SETTLED_STALE'
    end
    if r.outcome == LW_RETRY or r.outcome == LW_LATER or r.outcome == LW_BACK then
        grant_none(r.named)
        return put_back(r)
    end
    if waiting and waiting[r.i] then
        lane = lane_of(r.lock)
    elseif mode == LW_GO_NEXT or mode == LW_GO_DROP then
        grant_none(r.named)
        return release(r)
    end
    local stop = mode ~= LW_GO_DROP and is_paused(r.lock)
    if lane then drop_finished(r, lane) end
    if mode == LW_GO_NEXT then return go_next(r, lane, stop) end
    if mode == LW_GO_DROP then return go_drop(r, lane) end
    if mode == LW_GO_NAMED then return go_named(r, lane, stop) end
    if mode == LW_GO_HEADS then return go_heads(r, lane, stop) end
    return go_keep(r, lane, stop)
end

for i = 1, n do heads_each[i] = 0 end
for _, r in ipairs(left) do record(r) end
save_states()
for _, m in ipairs(forgotten) do forget_tries(m[1], m[2]) end
for _, r in ipairs(left) do
    local answer, given = go_on(r)
    out[r.i], heads_each[r.i] = answer, given or 0
end
save_states() -- messages that were put back are waiting now
for _, b in ipairs(backoffs) do set_backoff(b[1], b[2]) end
for _, b in ipairs(undue) do set_undue(b[1], b[2]) end
if #free > 0 then call('DEL', unpack(free)) end
for _, m in ipairs(tried_again) do set_tries(unpack(m)) end
if n_grants > 0 then take_fences(reserve) end
return {fence_base and text(fence_base) or '0', table.concat(out), table.concat(named_out),
    duplicates, tries_out, heads_out, string.char(unpack(heads_each))}
