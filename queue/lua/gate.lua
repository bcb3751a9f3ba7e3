#!lua
-- gate: admit a batch of new messages, of different lanes: run at once, or wait.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, then G × (state segment, tries segment), then the lock of each message's lane; the lane's list is
--      wait:<lane> beside lock:<lane>
-- ARGV 1 epoch id, 2 expected Redis time ms, 3 slack ms, 4 ttl_ms, 5 'park' or 'drop', 6 what tokens begin with, 7 number of the first
--      message's token, the others follow, 8 '1' where messages carry a dedup id, 9 G, then G × (topic:partition, how many messages), then per message, in
--      order of group: offset, envelope, and the dedup id where there are such
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or a list: per message 'R<fence> <attempts>' run, 'W' waiting, 'D' finished before, 'X' dropped
--      for a busy lane, 'U' dropped as a duplicate, 'B' a name of this lane holds another type
-- @lane
local id, expected, slack, ttl, on_busy, worker, first_token, with_dedup, n_groups = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6],
    tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9])
local why = refuse(id, expected, slack)
if why then return why end
local lanes, first_key, at = KEYS[2], 4 + 2 * n_groups, 10 + 2 * n_groups
local n, step = #KEYS - first_key, with_dedup and 3 or 2

-- one look a batch: floors, locks, who has waiters
local tps, counts = {}, {}
for g = 1, n_groups do
    tps[g] = ARGV[8 + 2 * g]
    counts[g] = tonumber(ARGV[9 + 2 * g])
end
local floor_now = call('HMGET', KEYS[3], unpack(tps))
local held = call('MGET', unpack(KEYS, first_key + 1))
local waiting = who_waits(lanes, first_key, n)

local out, i = {}, 0
for g = 1, n_groups do
    local tp, count = tps[g], counts[g]
    local group_floor = tonumber(floor_now[g] or 0)
    floors[tp] = group_floor
    -- one look a segment, one write
    local lo, hi = 4096, 0
    for k = 0, count - 1 do
        local b = floor(ARGV[at + step * k] % SEGMENT / 4)
        if b < lo then lo = b end
        if b > hi then hi = b end
    end
    local segment = call('GETRANGE', KEYS[3 + 2 * g], lo, hi)
    local has_tries = call('EXISTS', KEYS[4 + 2 * g]) == 1
    local sets, n_sets = {}, 0
    for _ = 1, count do
        i = i + 1
        local offset, lock, key = tonumber(ARGV[at]), held[i], KEYS[first_key + i]
        local index = offset % SEGMENT
        local byte = string.byte(segment, floor(index / 4) - lo + 1)
        local state, set, answer = byte and byte > 0 and bits(byte, index) or 0, nil, nil
        if state >= 2 or offset < group_floor then
            answer = 'D'
        elseif state == 1 then
            answer = 'W'
        elseif with_dedup and is_duplicate(ARGV[at + 2], tp, offset) then
            set, answer = 2, 'U'
        else
            local token = worker .. first_token + i - 1
            local mine = is_mine(lock, token)
            if not mine and (lock or (waiting and waiting[i]) or is_paused(key)) then
                if on_busy == 'drop' and not is_paused(key) then
                    set, answer = 2, 'X'
                else
                    local lane = lane_of(key)
                    local pushed = pcall_('LPUSH', P .. 'wait:' .. lane, ARGV[at + 1])
                    if type(pushed) == 'table' and pushed.err then
                        answer = 'B'
                    else
                        set, answer = 1, 'W'
                        if not (waiting and waiting[i]) then
                            local left = lock and call('PTTL', key) or 0
                            call('ZADD', lanes, 'NX', text(now + math.max(left, 0)), lane)
                        end
                    end
                end
            else
                local fence = next_fence()
                local ok
                if mine then
                    ok = call('SET', key, token .. ':' .. fence, 'PX', ttl)
                else
                    ok = call('SET', key, token .. ':' .. fence, 'PX', ttl, 'NX')
                end
                answer = ok and 'R' .. fence .. ' ' .. (has_tries and tries_of(tp, offset) or 0) or 'B'
            end
        end
        if set then
            sets[n_sets + 1], sets[n_sets + 2], sets[n_sets + 3], sets[n_sets + 4] = 'SET', 'u2', '#' .. index, set
            n_sets = n_sets + 4
        end
        out[i] = answer
        at = at + step
    end
    if n_sets > 0 then call('BITFIELD', KEYS[3 + 2 * g], unpack(sets)) end
end
save_fence()
return out
