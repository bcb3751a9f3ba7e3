#!lua
-- SPDX-License-Identifier: Apache-2.0
-- put: add replays and imports to their lanes, after all messages that wait in these lanes. The
-- same call removes a dead letter from its stream, or records that it was taken from its topic.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 ready, 5 dead, then the lock of each message's lane; the lane's
--      list is wait:<lane>
-- ARGV 1 handoff_ms
--      2 'undone': leave out a message whose original is done, and a dead letter that was taken
--        from its topic before; 'any': put such a message, too
--      3 'dry': the script only answers what it would do
--      then per message: its envelope; topic:partition of the original if the message was read from
--      Kafka again, otherwise ''; of a dead letter its id in `dead`, or its identity
--      TOPIC/PARTITION/OFFSET[#REPLAY] if it is in a topic, otherwise ''
-- Result: 'NOEPOCH', 'QUARANTINE', or one letter per message:
--      P put into its lane
--      A not put, because this identity was put before, and is waiting or finished
--      D left out, because the original is done
--      E left out, because this dead letter was taken from its topic before
--      U left out, because the original is not finished and will run without a replay
--      G not put, because its dead letter does not exist any more
--      B not put, because its envelope is malformed, or because wait:<lane> is not a list
-- Order of writes: `lanes`, the list, its state, and last what becomes of the dead letter.
-- @locks @segments @envelopes @lanes @taken
local handoff, which, dry = tonumber(ARGV[1]), ARGV[2], ARGV[3] == 'dry'
if not epoch[1] then return 'NOEPOCH' end
local why = refuse(epoch[1], '', 0, true)
if why then return why end
local lanes, dead, out, letters, arg = KEYS[2], KEYS[5], {}, {}, 4

local function put(lock, envelope, original, entry)
    local tp, offset = identity_of(envelope)
    if not tp then return 'B' end
    local letter = in_topic(entry) and entry
    if entry ~= '' and not letter and #call('XRANGE', dead, entry, entry) == 0 then return 'G' end
    if offset < floor_of(tp) or state_of(tp, offset) > LW_STATE_UNSEEN then return 'A' end
    if letter and which ~= 'any' and is_taken(letter) then return 'E' end
    -- The original of a dead letter in a topic was dead when it was sent there. It is unfinished,
    -- or done, only if it has run again since, because a crash kept its state from being recorded.
    if letter and original ~= '' and offset < floor_of(original) then original = '' end
    if original ~= '' then
        local state = offset < floor_of(original) and LW_STATE_DONE or state_of(original, offset)
        if state < LW_STATE_DONE then return 'U' end
        if state == LW_STATE_DONE and which ~= 'any' then return 'D' end
    end
    if dry then return 'P' end
    local lane, left = lane_of(lock), lock_left(lock)
    -- A replay need not wait until the messages that wait in its lane are due.
    local undue = left ~= -2 and is_undue(pcall_('GET', lock))
    local is_free = (left == -2 or undue) and not is_paused(lock)
    -- The lane is added to `lanes` before its list exists, so that tend finds every list.
    local added =
        call('ZADD', lanes, 'NX', text(now + (is_free and handoff or math.max(left, 0))), lane)
    local pushed = pcall_('LPUSH', P .. 'wait:' .. lane, envelope)
    if type(pushed) == 'table' then
        if added == 1 then forget_lane(lane) end
        return 'B'
    end
    set_state(tp, offset, LW_STATE_WAITING)
    if entry ~= '' then letters[#letters + 1] = entry end
    if pushed == 1 and added == 0 then list_vanished(lane) end
    if undue then
        call('DEL', lock)
        call('ZADD', lanes, text(now), lane)
    end
    if pushed == 1 and is_free then call('LPUSH', KEYS[4], lane) end
    return 'P'
end

for i = 1, #KEYS - 5 do
    out[i] = put(KEYS[5 + i], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
    arg = arg + 3
end
save_states()
for _, entry in ipairs(letters) do
    if in_topic(entry) then take(entry) else call('XDEL', dead, entry) end
end
return table.concat(out)
