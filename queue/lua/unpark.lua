#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- unpark: messages whose waiting list has vanished wait no more: they are unseen, so that their owner reads them from Kafka again.
-- KEYS 1 epoch, 2 floor
-- ARGV 1 epoch id, 2 topic:partition, 3.. offsets, 1,024 at most
-- Result: 'LOST', or how many of them were waiting
-- @states
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
