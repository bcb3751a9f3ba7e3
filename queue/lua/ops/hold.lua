#!lua
-- hold: an operator takes the lock of a lane for a trial, or gives it back.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, 5 ready, 6 lock
-- ARGV 1 'take' or 'free', 2 token, 3 ttl_ms, 4 handoff_ms
-- Result: take: the fence, or '' where another holds the lane; 'NOEPOCH', 'QUARANTINE'; free: 1, or 0 where it was not ours any more
-- @lane
local token, lane = ARGV[2], lane_of(KEYS[6])
if ARGV[1] == 'free' then
    if not is_mine(call('GET', KEYS[6]), token) then return 0 end
    call('DEL', KEYS[6])
    if call('EXISTS', P .. 'wait:' .. lane) == 1 and not is_paused(KEYS[6]) then hint(lane, now + tonumber(ARGV[4])) end
    return 1
end
if not epoch[1] then return 'NOEPOCH' end
local why = refuse(epoch[1], '', 0)
if why then return why end
if call('EXISTS', KEYS[6]) == 1 then return '' end
take_fences(1)
call('SET', KEYS[6], token .. ':' .. text(fence_base), 'PX', ARGV[3])
return text(fence_base)
