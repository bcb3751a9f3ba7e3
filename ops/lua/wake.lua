#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- wake: resume paused lanes.
-- KEYS 1 epoch, 2 lanes, 3 ready, 4 paused, then the lock of each lane; the lane's list is
--      wait:<lane>
-- ARGV 1 handoff_ms
-- Result: one letter per lane: R: the lane was resumed; N: the lane was not paused
-- @lanes @hints
local handoff, out = tonumber(ARGV[1]), {}
for i = 1, #KEYS - 4 do
    local lock = KEYS[4 + i]
    local lane = lane_of(lock)
    out[i] = call('SREM', KEYS[4], lane) == 1 and 'R' or 'N'
    if out[i] == 'R' and call('EXISTS', lock) == 0
            and call('EXISTS', P .. 'wait:' .. lane) == 1 then
        hint(lane, now + handoff)
    end
end
return table.concat(out)
