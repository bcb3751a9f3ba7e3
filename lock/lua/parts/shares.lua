-- SPDX-License-Identifier: Apache-2.0
-- Leases that are members of a zset: those of readers and of permits. Needs the part `fences`.

-- Adds or extends a lease. The members of the zset are TOKEN:FENCE, and their scores are the times
-- at which the leases end. The key expires with the lease that ends last.
local function add_share(leases, value, ttl)
    call('ZADD', leases, text(now_ms() + ttl), value)
    if call('PTTL', leases) < tonumber(ttl) then call('PEXPIRE', leases, ttl) end
end
-- Returns the lease with this token, and its fence. Returns nil if there is no such lease. Such a
-- lease exists only if the call was already executed once and its answer was lost.
local function fence_of_share(leases, token)
    for _, value in ipairs(call('ZRANGE', leases, 0, -1)) do
        if sub(value, 1, #token + 1) == token .. ':' then return value, sub(value, #token + 2) end
    end
end
local function share_is_live(leases, value)
    local till = call('ZSCORE', leases, value)
    return till and tonumber(till) > now_ms()
end
