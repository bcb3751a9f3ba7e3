#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- tend: examines the lanes whose time has come, and makes a hint for each lane that is neither held
-- nor paused. If the waiting list of a lane has vanished, reports the lane to the owners of the
-- messages that waited in it. Forgets workers that have been silent for a long time.
-- KEYS    1 epoch, 2 lanes, 3 ready, 4 workers
-- ARGV    1 epoch id, 2 maximum number of lanes, 3 ttl_ms, 4 handoff_ms, 5 '1' if the caller has
--         limits of groups; otherwise it does not run lanes of groups, so all hints go to `ready`
-- Result: 'LOST', 'QUARANTINE', or the number of lanes examined; 0 if the list `ready` is so long
--         that no further hint was added. If this number is less than the maximum, no further call
--         is needed now.
-- @locks @lanes @hints
local READY_MAX, VANISHED_A_CALL, SILENT_A_CALL = 1024, 64, 64
local id, most, ttl, handoff = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local why = refuse(id, '', 0)
if why then return why end
local lanes, ready = KEYS[2], KEYS[3]
ignore_groups = ARGV[5] ~= '1'
-- A killed worker may leave `claimed` without an expiry, since Redis drops the PEXPIRE behind the
-- last pop if it finds the connection closed. The hints in it are made again below.
local silent = pcall_('ZRANGEBYSCORE', KEYS[4], '-inf', text(now - 10 * ttl - 60000), 'LIMIT', 0,
    SILENT_A_CALL)
for _, worker in ipairs(silent) do
    call('ZREM', KEYS[4], worker)
    call('DEL', P .. 'claimed:' .. worker)
end
local due = call('ZRANGEBYSCORE', lanes, '-inf', text(now), 'LIMIT', 0, most)
-- also examine lanes whose score is too far ahead, which was set before Redis' clock went back
if #due < most then
    for _, lane in ipairs(call('ZRANGEBYSCORE', lanes, '(' .. text(now + 3 * ttl), '+inf',
            'LIMIT', 0, most - #due)) do
        due[#due + 1] = lane
    end
end
local room, vanished = READY_MAX - call('LLEN', ready), 0
for _, lane in ipairs(due) do
    local left, listed = lock_left(P .. 'lock:' .. lane), call('EXISTS', P .. 'wait:' .. lane) == 1
    -- forget the lane even if it is held, because its holder does not find a list either
    if not listed and vanished < VANISHED_A_CALL then
        vanished = vanished + 1
        forget_vanished(lane)
    elseif not listed then
        -- leave the lane to a later call, because this call has added VANISHED_A_CALL entries to
        -- `vanished`, and owners read only some of these entries at a time
        call('ZADD', lanes, text(now + math.max(floor(ttl / 4), 1)), lane)
    elseif left ~= -2 then
        call('ZADD', lanes, text(now + ((left < 0 or left > ttl) and ttl or math.max(left, 1))),
            lane)
    elseif is_paused(P .. 'lock:' .. lane) then
        call('ZADD', lanes, text(now + ttl), lane)
    else
        if room <= 0 then return 0 end
        room = room - 1
        hint(lane, now + handoff)
    end
end
return #due
