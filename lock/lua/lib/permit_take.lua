-- SPDX-License-Identifier: Apache-2.0
-- permit_take: takes one of the n permits of a semaphore
-- KEYS 1 zset of leases, 2 fence counter, 3 zset of waiting clients
-- ARGV 1 token, 2 ttl_ms, 3 largest fence that the caller has seen,
--      4 lifetime of the fence counter in ms, 5 n,
--      6 client to notify of a release, '': none,
--      7 '1' if other threads of that client still wait after this call has taken a permit,
--      8 '1' if the call is sent again
-- Result: the fence as a string; or, if all permits are taken, the ms until the first of their
--      leases expires
-- @fences
-- @waiting
-- @shares
local leases, fence_key, wait = KEYS[1], KEYS[2], KEYS[3]
local token, ttl, seen, keep_ms, n, client, more, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4],
    tonumber(ARGV[5]), ARGV[6], ARGV[7] == '1', ARGV[8] == '1'
call('ZREMRANGEBYSCORE', leases, '-inf', text(now_ms()))
if again then
    local value, fence = fence_of_share(leases, token)
    if value then
        add_share(leases, value, ttl)
        stop_waiting(wait, client, more)
        return fence
    end
end
local taken = call('ZCARD', leases)
if taken >= n then
    start_waiting(wait, client)
    return math.max(tonumber(call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]) - now_ms(), 0)
end
local fence = next_fence(fence_key, seen)
add_share(leases, token .. ':' .. fence, ttl)
save_fence(fence_key, fence, keep_ms)
-- if several permits have become free at once, one more client can take a permit, so notify it
if taken + 1 < n then wake(wait) end
stop_waiting(wait, client, more)
return fence
