#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- hints: pops several hints from the list `ready` with one call. The script also works at
-- maxmemory, when Redis refuses BRPOPLPUSH.
-- KEYS    1 epoch, 2 ready, 3 claimed:<worker>
-- ARGV    1 epoch id, 2 maximum number of hints, 3 ttl_ms
-- Result: 'LOST' or a list of lanes, oldest hint first
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 'LOST' end
local out = {}
for i = 1, tonumber(ARGV[2]) do
    local lane = redis.call('RPOPLPUSH', KEYS[2], KEYS[3])
    if not lane then break end
    out[i] = lane
    -- set the TTL of the list `claimed` right after the first hint was moved to it, because a later
    -- RPOPLPUSH may fail
    if i == 1 then redis.call('PEXPIRE', KEYS[3], 4 * tonumber(ARGV[3])) end
end
return out
