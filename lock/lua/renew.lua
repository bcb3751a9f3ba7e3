#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- renew: extends those locks of a batch that still have the given tokens. Never takes a lock.
-- KEYS 1 epoch, then locks
-- ARGV 1 epoch id, 2 ttl_ms, then of each lock its token, and which message runs under it, as
--      'IDENTITY ATTEMPT SINCE_MS', or '' if none has run for long
-- Result: 'LOST', or a string with one character per lock: '1' extended, '0' not the given token
-- Which message runs is only for operators: it is kept in run:<lane> behind the value of the lock
-- to which it belongs, and a failure to write it must not cost the lease.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 'LOST' end
local values = redis.call('MGET', unpack(KEYS, 2))
local prefix = string.sub(KEYS[1], 1, -6)
local out = {}
for i = 1, #KEYS - 1 do
    local value, token, run = values[i], ARGV[1 + 2 * i], ARGV[2 + 2 * i]
    local mine = value and string.sub(value, 1, #token) == token
        and string.sub(value, #token + 1, #token + 1) == ':'
    out[i] = mine and redis.call('PEXPIRE', KEYS[1 + i], ARGV[2]) == 1 and '1' or '0'
    if out[i] == '1' and run ~= '' then
        local name = prefix .. 'run:' .. string.sub(KEYS[1 + i], #prefix + 6)
        redis.pcall('SET', name, value .. ' ' .. run, 'PX', ARGV[2])
    end
end
return {ok = table.concat(out)}
