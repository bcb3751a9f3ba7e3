-- SPDX-License-Identifier: Apache-2.0
-- string_keep: extends a lock if it is ours, or only checks whether it is ours. The script never
-- takes a lock.
-- KEYS 1 lock
-- ARGV 1 value, 2 ttl_ms, '0' to check only
-- Result: 1, or 0 if it is not ours
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
