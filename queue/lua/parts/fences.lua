-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A new fence is max(last + 1, time in microseconds), so that fences grow even after a lock expired
-- or Redis was wiped. A call that grants messages takes `reserve` numbers at once. The first
-- message that the call grants under a lane's lock has the fence fence_base, the second has
-- fence_base + 1, and so on.
local fence_base = nil
local function take_fences(reserve)
    if fence_base then return end
    fence_base = math.max(tonumber(call('GET', P .. 'fence') or 0) + 1, now_us)
    call('SET', P .. 'fence', text(fence_base + reserve - 1))
end
