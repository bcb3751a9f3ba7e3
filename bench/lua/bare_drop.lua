-- SPDX-License-Identifier: Apache-2.0
-- bare_drop: deletes a lock that bare_take took, if it still has this token
-- KEYS 1 lock
-- ARGV 1 token
-- Answer: 1 if the lock was deleted, otherwise 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
