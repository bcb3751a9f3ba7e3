#!lua flags=allow-oom
-- settle: what became of a batch of messages, of different lanes; hand each lane on.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, 5 ready, 6 dead, then G × (state segment, tries segment), then per message (lock, wait)
-- ARGV 1 epoch id, 2 ttl_ms, 3 handoff_ms, 4 retry.order 'block' or 'skip', 5 dedup window s, 6 G, then G × topic:partition, then per message:
--      group, offset, lane, token, outcome, mode, group of next (0: none), offset of next, dedup of next, dedup, backoff_ms, reason, envelope
--   outcome: 'done'; 'retry' (counts a try); 'back'; 'dead'; 'sent' (dead, already on its topic)
--   mode: 'keep' the lease for the next message of the local chain, 'next' hand over a waiting head, 'drop' the lease
--   The envelope may be '' for done and sent.
-- Result: 'LOST', 'QUARANTINE', or a list: per message two: answer, envelope of the head or ''; at last the number of duplicates dropped.
--   'S' stale: the lease is no longer this token's (done was recorded all the same), 'L' released, 'K<fence> <attempts>' kept,
--   'P' skip: the next of the chain is finished, lease extended; 'N<fence> <attempts>' next: the head is handed over; 'B' released, but
--   the message could not be put back, since the name of its list holds another type
-- @lane
local id, ttl, handoff, skip, window, n_groups = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == 'skip', tonumber(ARGV[5]),
    tonumber(ARGV[6])
local why = refuse(id, '', 0)
if why then return why end
local lanes, ready, first_key, first_arg = KEYS[2], KEYS[5], 6 + 2 * n_groups, 6 + n_groups
local ITEM = 13
local n = (#ARGV - first_arg) / ITEM

local floor_now = call('HMGET', KEYS[3], unpack(ARGV, 7, 6 + n_groups))
local has_tries = {}
for g = 1, n_groups do
    floors[ARGV[6 + g]] = tonumber(floor_now[g] or 0)
    has_tries[g] = call('EXISTS', KEYS[6 + 2 * g]) == 1
end
local lo, hi, locks, names = {}, {}, {}, {}
for i = 0, n - 1 do
    local a = first_arg + ITEM * i
    local g, at = tonumber(ARGV[a + 1]), floor(tonumber(ARGV[a + 2]) % SEGMENT / 4)
    if not lo[g] or at < lo[g] then lo[g] = at end
    if not hi[g] or at > hi[g] then hi[g] = at end
    locks[i + 1] = KEYS[first_key + 2 * i + 1]
    names[i + 1] = ARGV[a + 3]
end
local segment, sets = {}, {}
for g = 1, n_groups do
    segment[g] = lo[g] and call('GETRANGE', KEYS[6 + 2 * g - 1], lo[g], hi[g]) or ''
    sets[g] = {}
end
local held = call('MGET', unpack(locks))
local waiting = call('EXISTS', lanes) == 1 and call('ZMSCORE', lanes, unpack(names))
local free = {}

local function set(g, tp, offset, state)
    local ops = sets[g]
    local k = #ops
    ops[k + 1], ops[k + 2], ops[k + 3], ops[k + 4] = 'SET', 'u2', '#' .. offset % SEGMENT, state
    if waiting then written[tp .. ':' .. text(offset)] = state end -- a head may be this message
end
local function attempts(tp, offset) return text((tries_of(tp, offset))) end

local out = {}
for i = 0, n - 1 do
    local a = first_arg + ITEM * i
    local g, offset, lane, token, outcome, mode = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4], ARGV[a + 5],
        ARGV[a + 6]
    local lock, wait, tp, dedup = locks[i + 1], KEYS[first_key + 2 * i + 2], ARGV[6 + g], ARGV[a + 10]
    local index = offset % SEGMENT
    local byte = string.byte(segment[g], floor(index / 4) - lo[g] + 1)
    local state = byte and bits(byte, index) or 0
    local fin = offset < floors[tp] or state >= 2
    local answer, head_out = nil, ''
    if outcome == 'done' and has_tries[g] then forget_tries(tp, offset) end
    if outcome == 'done' and not fin then -- the effect has happened, whoever holds the lease now
        set(g, tp, offset, 2)
        if dedup ~= '' and window > 0 then call('SET', P .. 'dedup:' .. dedup, tp .. ':' .. text(offset), 'EX', window, 'NX') end
    end
    if not is_mine(held[i + 1], token) then
        answer = 'S'
    else
        if fin then outcome = 'done' end -- a state never goes down
        if outcome == 'dead' or outcome == 'sent' then
            local tried, first = tries_of(tp, offset)
            set(g, tp, offset, 3)
            if outcome == 'dead' then
                call('XADD', KEYS[6], '*', 'envelope', ARGV[a + 13], 'reason', ARGV[a + 12], 'attempts', text(tried + 1), 'first_ms',
                    text(first > 0 and first or now), 'last_ms', text(now))
            end
            if has_tries[g] then forget_tries(tp, offset) end
        end
        if outcome == 'retry' or outcome == 'back' then
            local backoff = outcome == 'back' and 0 or tonumber(ARGV[a + 11])
            local head = pcall_('LINDEX', wait, -1)
            local head_tp, head_offset
            if type(head) == 'string' then head_tp, head_offset = identity_of(head) end
            local there = head_tp == tp and head_offset == offset
            if type(head) == 'table' then
                outcome = 'bad'
            elseif not there then
                call('RPUSH', wait, ARGV[a + 13])
            end
            if outcome ~= 'bad' then set(g, tp, offset, 1) end
            local rotate = skip and backoff > 0
            if outcome == 'retry' then
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
            local head, head_tp, head_offset
            if waiting and waiting[i + 1] then
                head, head_tp, head_offset = runnable_head(lane, skip and mode ~= 'keep')
            end
            local stop = mode ~= 'drop' and is_paused(lane)
            if mode == 'keep' and not stop then
                local next_group, next_offset = tonumber(ARGV[a + 7]), tonumber(ARGV[a + 8])
                if head then call('ZADD', lanes, text(now + ttl), lane) end
                local next_tp = ARGV[6 + next_group]
                local next_fin = finished(next_tp, next_offset)
                if not next_fin and is_duplicate(ARGV[a + 9], next_tp, next_offset) then
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
            elseif mode == 'next' and not stop and head ~= 'MORE' then
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
    out[2 * i + 1] = answer
    out[2 * i + 2] = head_out
end
if #free > 0 then call('DEL', unpack(free)) end
for g = 1, n_groups do
    if #sets[g] > 0 then call('BITFIELD', KEYS[6 + 2 * g - 1], unpack(sets[g])) end
end
save_states()
save_fence()
out[2 * n + 1] = duplicates
return out
