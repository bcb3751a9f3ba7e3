#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- drop: discard waiting messages. Their state becomes done, so they never run. If nobody holds the
-- lane, the discarded messages at the oldest end of the list are removed at once. The next claim or
-- settle of the lane removes other discarded messages that have become the oldest.
-- KEYS 1 epoch, 2 lanes, 3 floor, then the lock of each message's lane; the lane's list is
--      wait:<lane>
-- ARGV 1 maximum number of messages that a lane's holder may have been granted
--      2 'dry': the script only answers what it would do
--      then per message: topic:partition[#replay], offset
-- Result: 'NOEPOCH', 'QUARANTINE', or one letter per message:
--      X dropped
--      D the message was finished before
--      N the message is not waiting
--      H not dropped, because the holder of the lane may have the message
--      - not examined, because the call has read enough; the caller must call again
-- @locks @heads
if not epoch[1] then return 'NOEPOCH' end
local why = refuse(epoch[1], '', 0, true)
if why then return why end
local HELD_MAX = 2 -- maximum number of lanes with a holder that one call reads
local ahead, dry, out, held, n_held, dropped = tonumber(ARGV[1]), ARGV[2] == 'dry', {}, {}, 0, {}

-- Returns the messages that a lane's holder may have: the oldest `ahead` unfinished messages, up to
-- lane_bytes bytes. If the lane has no holder, there are no such messages. Returns nil if the call
-- has already read HELD_MAX lanes with a holder.
local function granted(lock)
    local g = held[lock]
    if g then return g end
    g = {}
    local value = pcall_('GET', lock)
    local is_held = value and (type(value) ~= 'string' or not is_backoff(value))
    if is_held then
        if n_held == HELD_MAX then return nil end
        n_held = n_held + 1
    end
    held[lock] = g
    if not is_held then return g end
    local wait, at, n, bytes = P .. 'wait:' .. lane_of(lock), 0, 0, 0
    repeat
        local most = read_at_once(lane_bytes)
        local list = pcall_('LRANGE', wait, -at - most, -at - 1)
        if list.err then return g end
        for k = #list, 1, -1 do
            count_read(list[k])
            local tp, offset = identity_of(list[k])
            local name = tp and tp .. ':' .. text(offset)
            -- a message that is in the list twice counts as one
            if tp and not g[name] and not finished(tp, offset) then
                bytes = bytes + #list[k]
                -- a holder is never granted more than `ahead` messages or lane_bytes bytes at once
                if n == ahead or (n > 0 and bytes > lane_bytes) then return g end
                g[name] = true
                n = n + 1
            end
        end
        at = at + #list
    until #list < most or at >= 2 * ahead
    return g
end

for i = 1, #KEYS - 3 do
    local lock, tp, offset = KEYS[3 + i], ARGV[2 * i + 1], tonumber(ARGV[2 * i + 2])
    local state = offset < floor_of(tp) and LW_STATE_DONE or state_of(tp, offset)
    if state >= LW_STATE_DONE then
        out[i] = 'D'
    elseif state == LW_STATE_UNSEEN and not find(tp, '#', 1, true) then
        -- A message whose mark is missing does not wait. A replay may still wait, because its mark
        -- may have expired.
        out[i] = 'N'
    else
        local g = granted(lock)
        out[i] = not g and '-' or g[tp .. ':' .. text(offset)] and 'H' or 'X'
        if out[i] == 'X' and not dry then
            set_state(tp, offset, LW_STATE_DONE)
            dropped[#dropped + 1] = {tp, offset}
        end
    end
end
save_states()
for _, m in ipairs(dropped) do forget_tries(m[1], m[2]) end
local pruned = {}
for i = 1, #KEYS - 3 do
    local lock = KEYS[3 + i]
    if out[i] == 'X' and not dry and not pruned[lock] and call('EXISTS', lock) == 0 then
        take_heads(lane_of(lock), 1, 0)
        pruned[lock] = true
    end
end
save_states()
return table.concat(out)
