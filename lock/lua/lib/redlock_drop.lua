-- SPDX-License-Identifier: Apache-2.0
-- redlock_drop: releases one server's part of a lock if it is ours
-- KEYS 1 lock
-- ARGV 1 token
-- Result: 1, or 0 if it is not ours; in that case nothing is changed
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
