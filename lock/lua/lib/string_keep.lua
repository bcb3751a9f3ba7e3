-- SPDX-License-Identifier: Apache-2.0
-- string_keep: extends a lock if its value is the caller's, or only checks the value. This script
-- never takes a lock.
-- KEYS 1 lock
-- ARGV 1 value, 2 ttl_ms, '0' to check only
-- Result: 1, or 0 if the lock does not have this value
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
