#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- ready: takes lanes of groups for which the caller has permits, and names groups that have lanes
-- which may be runnable (parts/hints.lua).
-- KEYS    1 epoch, 2 lanes, 3 groups
-- ARGV    1 epoch id, 2 handoff_ms, 3 maximum number of groups to name, then of each group: its
--         name, maximum number of lanes to take
-- Result: 'LOST', or {taken, named}
--         taken: for each lane, the number of its group in ARGV, from 0, and the lane
--         named: for each group, its name and the number of its lanes
-- The groups that were not named for the longest time are named first. So those that are at their
-- limits do not hide the others. A lane whose caller dies is examined by tend after handoff_ms.
-- @epoch
local id, handoff, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if refuse(id, '', 0) == 'LOST' then return 'LOST' end
local lanes, groups, taken, named = KEYS[2], KEYS[3], {}, {}
for i = 4, #ARGV, 2 do
    local ready = P .. 'ready:' .. ARGV[i]
    local found = call('ZRANGE', ready, '0', text(tonumber(ARGV[i + 1]) - 1))
    for _, lane in ipairs(found) do
        taken[#taken + 1] = (i - 4) / 2
        taken[#taken + 1] = lane
        call('ZADD', lanes, 'XX', text(now + handoff), lane)
        call('ZREM', ready, lane)
    end
end
for _, group in ipairs(most > 0 and call('ZRANGE', groups, '0', text(most - 1)) or {}) do
    local n = call('ZCARD', P .. 'ready:' .. group)
    if n > 0 then
        named[#named + 1] = group
        named[#named + 1] = n
        call('ZADD', groups, 'XX', text(now), group)
    else
        call('ZREM', groups, group)
    end
end
return {taken, named}
