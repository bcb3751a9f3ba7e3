#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- unpark: marks messages whose waiting list has vanished as unseen, so that their owner reads them
-- from Kafka again.
-- KEYS    1 epoch, 2 floor
-- ARGV    1 epoch id, 2 topic:partition, then at most 1,024 offsets
-- Result: 'LOST', or the number of these messages that were marked as waiting
-- @segments
if refuse(ARGV[1], '', 0) == 'LOST' then return 'LOST' end
local tp, n = ARGV[2], 0
for i = 3, #ARGV do
    local offset = tonumber(ARGV[i])
    if offset >= floor_of(tp) and state_of(tp, offset) == LW_STATE_WAITING then
        put_state(segment_of(tp, offset), offset % LW_SEGMENT, LW_STATE_UNSEEN)
        n = n + 1
    end
end
save_states()
return n
