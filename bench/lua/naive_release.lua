-- SPDX-License-Identifier: Apache-2.0
-- naive_release: deletes a lock of the naive loop (bench/naive.c) if this thread still holds it
-- KEYS 1 lock
-- ARGV 1 token
-- Answer: 1 if the lock was deleted, otherwise 0
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
