-- SPDX-License-Identifier: Apache-2.0
-- Leases in a zset. Needs fences.
-- A lease in a zset of leases TOKEN:FENCE, scored by their ends; the key itself lives as long as the longest.
local function add_share(leases, value, ttl)
    call('ZADD', leases, text(now_ms() + ttl), value)
    if call('PTTL', leases) < tonumber(ttl) then call('PEXPIRE', leases, ttl) end
end
-- The fence of a lease with this token, which exists if the call was sent again because its answer was lost.
local function fence_of_share(leases, token)
    for _, value in ipairs(call('ZRANGE', leases, 0, -1)) do
        if sub(value, 1, #token + 1) == token .. ':' then return value, sub(value, #token + 2) end
    end
end
local function share_is_live(leases, value)
    local till = call('ZSCORE', leases, value)
    return till and tonumber(till) > now_ms()
end
