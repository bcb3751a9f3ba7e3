-- SPDX-License-Identifier: Apache-2.0
-- redlock_drop: releases a Redlock on one server if its value is the caller's token
-- KEYS 1 lock
-- ARGV 1 token
-- Result: 1, or 0 if the lock does not have this value; in that case nothing is changed
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
