-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A new fence is max(last + 1, time in microseconds), so that fences grow even after a lock expired
-- or Redis was wiped. A call that grants messages takes `reserve` numbers at once: the i-th message
-- that it grants under a lane's lock has fence_base + i, counted from 0.
local fence_base = nil
local function take_fences(reserve)
    if fence_base then return end
    fence_base = math.max(tonumber(call('GET', P .. 'fence') or 0) + 1, now_us)
    call('SET', P .. 'fence', text(fence_base + reserve - 1))
end
