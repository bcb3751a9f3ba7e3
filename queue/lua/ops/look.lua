#!lua flags=no-writes
-- look: lanes as they stand, for people.
-- KEYS 1 epoch, 2 lanes, 3 floor
-- ARGV lanes
-- Result: Redis time ms, then seven a lane: elements of its list, -1 where its name holds another type; the oldest one's line of numbers, ''
--      where none is; value of the lock, ''; ms until it ends, -1 never; '1' where the lane is paused; attempts of the oldest so far; when it
--      is due, 0 now. Elements that are finished may still be counted: the next claim or settle of the lane drops them.
--      Of large messages fewer lanes than were asked for, one at least: ask again for the others.
-- @lane
local BYTES_MAX = 131072
local out, read = {text(now)}, 0

-- The oldest that is not finished: a few that are may still stand at the end.
local function oldest(wait)
    for _, range in ipairs({{-1, -1}, {-16, -2}}) do
        local list = call('LRANGE', wait, range[1], range[2])
        for k = #list, 1, -1 do
            read = read + #list[k]
            local tp, offset = identity_of(list[k])
            if tp and not finished(tp, offset) then return list[k], tp, offset end
        end
    end
    return nil
end

for i, lane in ipairs(ARGV) do
    local wait, lock = P .. 'wait:' .. lane, P .. 'lock:' .. lane
    local n, line, tried, due, _ = pcall_('LLEN', wait), '', 0, 0, nil
    if type(n) == 'table' then n = -1 end
    if n > 0 then
        local envelope, tp, offset = oldest(wait)
        if envelope then
            line = string.match(envelope, '^[^\n]*')
            tried, _, due = tries_of(tp, offset)
        end
    end
    local held, left = pcall_('GET', lock), 0
    if type(held) == 'table' then held = '(not a lock)' end
    if held then left = call('PTTL', lock) end
    local at = 7 * i - 5
    out[at], out[at + 1], out[at + 2], out[at + 3] = text(n), line, held or '', text(left)
    out[at + 4], out[at + 5], out[at + 6] = is_paused(lock) and '1' or '', text(tried), text(due)
    if read > BYTES_MAX then break end
end
return out
