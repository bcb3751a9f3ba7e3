#!lua flags=allow-oom
-- claim: take a batch of lanes that hints say may be runnable. The head stays in its list until it is settled.
-- KEYS 1 epoch, 2 lanes, 3 fence, 4 ready, 5 claimed:<worker>, then per hint (lock, wait)
-- ARGV 1 epoch id, 2 expected Redis time ms, 3 slack ms, 4 ttl_ms, 5 handoff_ms, 6 retry.order, 7 how many hints leave `claimed`, then per hint: lane, token
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or a list: per hint two: 'N<fence> <attempts>' and the head's envelope, 'E' empty, or 'B' busy; at
--   last the number of duplicates dropped
-- @lane
local id, expected, slack, ttl, handoff, skip, taken = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == 'skip',
    tonumber(ARGV[7])
local why = refuse(id, expected, slack)
if why then return why end
local lanes = KEYS[2]
local n = (#ARGV - 7) / 2
if taken > 0 then
    call('LTRIM', KEYS[5], 0, -1 - taken)
    call('PEXPIRE', KEYS[5], text(4 * ttl))
end
local out = {}
for i = 0, n - 1 do
    local lane, token, lock = ARGV[8 + 2 * i], ARGV[9 + 2 * i], KEYS[6 + 2 * i]
    local held = pcall_('GET', lock)
    local answer, head_out = 'B', ''
    local broken = type(held) == 'table'
    local mine = not broken and is_mine(held, token)
    if not broken and (not held or mine) and not is_paused(lock) then
        local head, tp, offset = runnable_head(lane, skip)
        if head == nil or head == 'BAD' or head == 'MORE' then
            if mine then call('DEL', lock) end
            if head == 'MORE' then hint(lane, now + handoff) end
            if head == nil then answer = 'E' end
        elseif head == 'UNDUE' then
            call('SET', lock, 'backoff', 'PX', text(math.max(tp - now, 1)))
            call('ZADD', lanes, text(tp), lane)
        else
            local fence = next_fence()
            call('SET', lock, token .. ':' .. fence, 'PX', text(ttl))
            call('ZADD', lanes, text(now + ttl), lane)
            answer = 'N' .. fence .. ' ' .. text((tries_of(tp, offset)))
            head_out = head
        end
    end
    out[2 * i + 1] = answer
    out[2 * i + 2] = head_out
end
save_states()
save_fence()
out[2 * n + 1] = duplicates
return out
