#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- renew: extends those locks of a batch that still have the given tokens. Never takes a lock.
-- KEYS 1 epoch, then locks
-- ARGV 1 epoch id, 2 ttl_ms, then the token of each lock
-- Result: 'LOST', or a string with one character per lock: '1' extended, '0' not the given token
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 'LOST' end
local values = redis.call('MGET', unpack(KEYS, 2))
local out = {}
for i = 1, #KEYS - 1 do
    local value, token = values[i], ARGV[2 + i]
    local mine = value and string.sub(value, 1, #token) == token
        and string.sub(value, #token + 1, #token + 1) == ':'
    out[i] = mine and redis.call('PEXPIRE', KEYS[1 + i], ARGV[2]) == 1 and '1' or '0'
end
return {ok = table.concat(out)}
