#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- repair: the owner of partitions writes back which messages it knows to be finished, after an
-- epoch was lost.
-- KEYS    1 epoch, 2 floor
-- ARGV    1 epoch id, 2 number of partitions, then of each partition: topic:partition, committed,
--         from (as in floor); then of each finished range: topic:partition, first offset, end (not
--         included). The ranges have at most 4,096 offsets in all.
-- Result: 'OK', 'LOST', or 'LATE' if the quarantine is over: then the floors were used, but the
--         ranges were not
-- If there are more segments below a floor than one call may delete, later calls of floor delete
-- the remaining segments.
-- @floors
local id, n = ARGV[1], tonumber(ARGV[2])
local why = refuse(id, '', 0)
if why == 'LOST' then return why end
local at = 3
for _ = 1, n do
    raise_floor(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), true)
    at = at + 3
end
if why ~= 'QUARANTINE' then return 'LATE' end
while at <= #ARGV do
    local tp = ARGV[at]
    for offset = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]) - 1 do
        if state_of(tp, offset) < LW_STATE_DONE then set_state(tp, offset, LW_STATE_DONE) end
    end
    at = at + 3
end
save_states()
return 'OK'
