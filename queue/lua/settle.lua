#!lua flags=allow-oom
-- settle: what became of a batch of messages, of different lanes; hand each lane on.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, 5 ready, 6 dead, then G × (state segment, tries segment), then the lock of each message's lane; the lane's
--      list is wait:<lane> beside lock:<lane>
-- ARGV 1 epoch id, 2 ttl_ms, 3 handoff_ms, 4 retry.order 'block' or 'skip', 5 dedup window s, '' where messages carry no dedup id, 6 what
--      tokens begin with, 7 G, then G × topic:partition, then per message: group, offset, number of the token, and two letters that say what happened
--      and how to go on, followed by what they need:
--   'd' done; 'r' retry, counts a try: backoff_ms, envelope; 'b' back: envelope; 'x' dead: reason, envelope; 's' dead and sent to its topic
--   'k' keep the lease for the next message of the local chain: its group, its offset and, with dedup ids, its id; 'n' hand over a waiting head; '-' drop the lease
--   at last, with dedup ids, the message's own
-- Result: 'LOST', 'QUARANTINE', or a list: per message two: answer, envelope of the head or ''; at last the number of duplicates dropped.
--   'S' stale: the lease is no longer this token's (done was recorded all the same), 'L' released, 'K<fence> <attempts>' kept,
--   'P' skip: the next of the chain is finished, lease extended; 'N<fence> <attempts>' next: the head is handed over; 'B' released, but
--   the message could not be put back, since the name of its list holds another type
-- @lane
local id, ttl, handoff, skip, with_dedup, window, worker, n_groups = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == 'skip',
    ARGV[5] ~= '', tonumber(ARGV[5] ~= '' and ARGV[5] or 0), ARGV[6], tonumber(ARGV[7])
local why = refuse(id, '', 0)
if why then return why end
local lanes, first_key = KEYS[2], 6 + 2 * n_groups
local n = #KEYS - first_key

local tps, has_tries, sets = {}, {}, {}
for g = 1, n_groups do
    tps[g] = ARGV[7 + g]
    has_tries[g] = call('EXISTS', KEYS[6 + 2 * g]) == 1
    sets[g] = {}
end
local floor_now = call('HMGET', KEYS[3], unpack(tps))
for g = 1, n_groups do floors[tps[g]] = tonumber(floor_now[g] or 0) end
local held = call('MGET', unpack(KEYS, first_key + 1))
local waiting = who_waits(lanes, first_key, n)

-- what each message needs, and which bytes of the segments they touch
local LETTER = {d = 0, r = 2, b = 1, x = 2, s = 0}
local starts, lo, hi = {}, {}, {}
local at = 8 + n_groups
local function look_at(g, offset)
    local b = floor(offset % SEGMENT / 4)
    if not lo[g] or b < lo[g] then lo[g] = b end
    if not hi[g] or b > hi[g] then hi[g] = b end
end
for i = 1, n do
    starts[i] = at
    local what = ARGV[at + 3]
    look_at(tonumber(ARGV[at]), ARGV[at + 1])
    at = at + 4 + LETTER[sub(what, 1, 1)]
    if sub(what, 2, 2) == 'k' then
        look_at(tonumber(ARGV[at]), ARGV[at + 1])
        at = at + (with_dedup and 3 or 2)
    end
    if with_dedup then at = at + 1 end
end
local segment = {}
for g = 1, n_groups do segment[g] = lo[g] and call('GETRANGE', KEYS[5 + 2 * g], lo[g], hi[g]) or '' end

local function set(g, tp, offset, state)
    local ops = sets[g]
    local k = #ops
    ops[k + 1], ops[k + 2], ops[k + 3], ops[k + 4] = 'SET', 'u2', '#' .. offset % SEGMENT, state
    if waiting then written[tp .. ':' .. text(offset)] = state end -- a head may be this message
end
-- As it was when the call began: only dropping heads, which needs waiters, changes another message of the lane meanwhile.
local function was_finished(g, offset)
    local byte = string.byte(segment[g], floor(offset % SEGMENT / 4) - lo[g] + 1)
    return offset < floors[tps[g]] or (byte and byte > 0 and bits(byte, offset % SEGMENT) >= 2) or false
end
local function attempts(tp, offset) return text((tries_of(tp, offset))) end

local out, free = {}, {}
for i = 1, n do
    at = starts[i]
    local g, offset, token, what = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), worker .. ARGV[at + 2], ARGV[at + 3]
    local outcome, mode = sub(what, 1, 1), sub(what, 2, 2)
    local extra = at + 4
    local mode_extra = extra + LETTER[outcome]
    local dedup = with_dedup and ARGV[mode_extra + (mode == 'k' and 3 or 0)] or ''
    local lock, tp = KEYS[first_key + i], tps[g]
    local index = offset % SEGMENT
    local byte = string.byte(segment[g], floor(index / 4) - lo[g] + 1)
    local state = byte and byte > 0 and bits(byte, index) or 0
    local fin = offset < floors[tp] or state >= 2
    local answer, head_out = nil, ''
    if outcome == 'd' and has_tries[g] then forget_tries(tp, offset) end
    if outcome == 'd' and not fin then -- the effect has happened, whoever holds the lease now
        set(g, tp, offset, 2)
        if dedup ~= '' and window > 0 then call('SET', P .. 'dedup:' .. dedup, tp .. ':' .. text(offset), 'EX', window, 'NX') end
    end
    if not is_mine(held[i], token) then
        answer = 'S'
    else
        if fin then outcome = 'd' end -- a state never goes down
        if outcome == 'x' or outcome == 's' then
            local tried, first = tries_of(tp, offset)
            set(g, tp, offset, 3)
            if outcome == 'x' then
                call('XADD', KEYS[6], '*', 'envelope', ARGV[extra + 1], 'reason', ARGV[extra], 'attempts', text(tried + 1), 'first_ms',
                    text(first > 0 and first or now), 'last_ms', text(now))
            end
            if has_tries[g] then forget_tries(tp, offset) end
        end
        if outcome == 'r' or outcome == 'b' then
            local lane = lane_of(lock)
            local wait = P .. 'wait:' .. lane
            local backoff = outcome == 'b' and 0 or tonumber(ARGV[extra])
            local envelope = outcome == 'b' and ARGV[extra] or ARGV[extra + 1]
            local head = pcall_('LINDEX', wait, -1)
            local head_tp, head_offset
            if type(head) == 'string' then head_tp, head_offset = identity_of(head) end
            local there = head_tp == tp and head_offset == offset
            if type(head) == 'table' then
                outcome = 'bad'
            elseif not there then
                call('RPUSH', wait, envelope)
            end
            if outcome ~= 'bad' then set(g, tp, offset, 1) end
            local rotate = skip and backoff > 0
            if outcome == 'r' then
                local tried, first = tries_of(tp, offset)
                set_tries(tp, offset, tried + 1, first > 0 and first or now, rotate and now + backoff or 0)
            end
            if rotate and outcome ~= 'bad' then call('RPOPLPUSH', wait, wait) end
            if outcome == 'bad' then
                free[#free + 1] = lock
                answer = 'B'
            elseif backoff > 0 and not rotate then
                call('SET', lock, 'backoff', 'PX', text(backoff))
                call('ZADD', lanes, text(now + backoff), lane)
            else
                free[#free + 1] = lock
                hint(lane, now + handoff)
            end
            answer = answer or 'L'
        else
            local lane, head, head_tp, head_offset
            if waiting and waiting[i] then
                lane = lane_of(lock)
                head, head_tp, head_offset = runnable_head(lane, skip and mode ~= 'k')
            end
            local stop = mode ~= '-' and is_paused(lock)
            if mode == 'k' and not stop then
                local next_group, next_offset = tonumber(ARGV[mode_extra]), tonumber(ARGV[mode_extra + 1])
                if head then call('ZADD', lanes, text(now + ttl), lane) end
                local next_tp = tps[next_group]
                local next_fin
                if waiting then
                    next_fin = finished(next_tp, next_offset)
                else
                    next_fin = was_finished(next_group, next_offset)
                end
                if not next_fin and with_dedup and is_duplicate(ARGV[mode_extra + 2], next_tp, next_offset) then
                    set(next_group, next_tp, next_offset, 2)
                    duplicates = duplicates + 1
                    next_fin = true
                end
                local fence = next_fence()
                call('SET', lock, token .. ':' .. fence, 'PX', text(ttl))
                if next_fin then
                    answer = 'P'
                else
                    answer = 'K' .. fence .. ' ' .. (has_tries[next_group] and attempts(next_tp, next_offset) or '0')
                end
            elseif not head or head == 'BAD' then
                free[#free + 1] = lock
                answer = 'L'
            elseif head == 'UNDUE' then
                call('SET', lock, 'backoff', 'PX', text(math.max(head_tp - now, 1)))
                call('ZADD', lanes, text(head_tp), lane)
                answer = 'L'
            elseif mode == 'n' and not stop and head ~= 'MORE' then
                local fence = next_fence()
                call('SET', lock, token .. ':' .. fence, 'PX', text(ttl))
                call('ZADD', lanes, text(now + ttl), lane)
                answer = 'N' .. fence .. ' ' .. attempts(head_tp, head_offset)
                head_out = head
            else
                free[#free + 1] = lock
                if stop then
                    call('ZADD', lanes, text(now + ttl), lane)
                else
                    hint(lane, now + handoff)
                end
                answer = 'L'
            end
        end
    end
    out[2 * i - 1] = answer
    out[2 * i] = head_out
end
if #free > 0 then call('DEL', unpack(free)) end
for g = 1, n_groups do
    if #sets[g] > 0 then call('BITFIELD', KEYS[5 + 2 * g], unpack(sets[g])) end
end
save_states()
save_fence()
out[2 * n + 1] = duplicates
return out
