#!lua
-- gate: admit a batch of new messages, of different lanes: run at once, or wait.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, then G × (state segment, tries segment), then per message (lock, wait)
-- ARGV 1 epoch id, 2 expected Redis time ms, 3 slack ms, 4 ttl_ms, 5 'park' or 'drop', 6 G, then G × topic:partition,
--      then per message: group, offset, lane, token, dedup, envelope
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or a list: per message 'R<fence> <attempts>' run, 'W' waiting, 'D' finished before, 'X' dropped
--      for a busy lane, 'U' dropped as a duplicate, 'B' a name of this lane holds another type
-- @lane
local id, expected, slack, ttl, on_busy, n_groups = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local why = refuse(id, expected, slack)
if why then return why end
local lanes, first_key, first_arg = KEYS[2], 4 + 2 * n_groups, 6 + n_groups
local n = (#ARGV - first_arg) / 6

-- one look a batch: floors, locks, who has waiters; one look a segment
local floor_now = call('HMGET', KEYS[3], unpack(ARGV, 7, 6 + n_groups))
local lo, hi = {}, {}
local locks, names = {}, {}
for i = 0, n - 1 do
    local a = first_arg + 6 * i
    local g, at = tonumber(ARGV[a + 1]), floor(tonumber(ARGV[a + 2]) % SEGMENT / 4)
    if not lo[g] or at < lo[g] then lo[g] = at end
    if not hi[g] or at > hi[g] then hi[g] = at end
    locks[i + 1] = KEYS[first_key + 2 * i + 1]
    names[i + 1] = ARGV[a + 3]
end
local segment, has_tries, sets = {}, {}, {}
for g = 1, n_groups do
    segment[g] = call('GETRANGE', KEYS[4 + 2 * g - 1], lo[g], hi[g])
    has_tries[g] = call('EXISTS', KEYS[4 + 2 * g]) == 1
    floors[ARGV[6 + g]] = tonumber(floor_now[g] or 0)
    sets[g] = {}
end
local held = call('MGET', unpack(locks))
local waiting = call('EXISTS', lanes) == 1 and call('ZMSCORE', lanes, unpack(names))

local function set(g, offset, state)
    local ops = sets[g]
    local k = #ops
    ops[k + 1], ops[k + 2], ops[k + 3], ops[k + 4] = 'SET', 'u2', '#' .. offset % SEGMENT, state
end

local out = {}
for i = 0, n - 1 do
    local a = first_arg + 6 * i
    local g, offset, lane, token, dedup = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]
    local tp = ARGV[6 + g]
    local index = offset % SEGMENT
    local byte = string.byte(segment[g], floor(index / 4) - lo[g] + 1)
    local state = byte and bits(byte, index) or 0
    local lock = held[i + 1]
    local answer
    if state >= 2 or offset < floors[tp] then
        answer = 'D'
    elseif state == 1 then
        answer = 'W'
    elseif is_duplicate(dedup, tp, offset) then
        set(g, offset, 2)
        answer = 'U'
    else
        local mine = is_mine(lock, token)
        if not mine and (lock or (waiting and waiting[i + 1]) or is_paused(lane)) then
            if on_busy == 'drop' and not is_paused(lane) then
                set(g, offset, 2)
                answer = 'X'
            else
                local pushed = pcall_('LPUSH', KEYS[first_key + 2 * i + 2], ARGV[a + 6])
                if type(pushed) == 'table' and pushed.err then
                    answer = 'B'
                else
                    set(g, offset, 1)
                    if not (waiting and waiting[i + 1]) then
                        local left = lock and call('PTTL', locks[i + 1]) or 0
                        call('ZADD', lanes, 'NX', text(now + math.max(left, 0)), lane)
                    end
                    answer = 'W'
                end
            end
        else
            local fence = next_fence()
            local ok
            if mine then
                ok = call('SET', locks[i + 1], token .. ':' .. fence, 'PX', ttl)
            else
                ok = call('SET', locks[i + 1], token .. ':' .. fence, 'PX', ttl, 'NX')
            end
            answer = ok and 'R' .. fence .. ' ' .. (has_tries[g] and tries_of(tp, offset) or 0) or 'B'
        end
    end
    out[i + 1] = answer
end
for g = 1, n_groups do
    if #sets[g] > 0 then call('BITFIELD', KEYS[4 + 2 * g - 1], unpack(sets[g])) end
end
save_fence()
return out
