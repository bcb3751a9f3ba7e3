-- SPDX-License-Identifier: Apache-2.0
-- Time and fences. scripts/embed-lua.sh puts a part where a script names it. Each function costs a
-- call about 0.2 us, so a script names only the parts that it needs, as late as it can.
local call, sub = redis.call, string.sub
local function text(n) return string.format('%.0f', n) end
local clock
local function now_us()
    clock = clock or call('TIME')
    return clock[1] * 1000000 + clock[2]
end
local function now_ms() return math.floor(now_us() / 1000) end

-- Fences grow even if the lock expires or is released, or Redis loses its data: each is the largest
-- of the last fence + 1, the time in microseconds, and `seen` + 1, where `seen` is the largest
-- fence that the caller has seen.
local function next_fence(key, seen) return text(math.max((tonumber(call('GET', key)) or 0) + 1, now_us(), tonumber(seen) + 1)) end
-- Stores the fence in its counter. keep_ms: time after which an unused counter expires; '0': never.
local function save_fence(key, fence, keep_ms)
    if keep_ms == '0' then call('SET', key, fence) else call('SET', key, fence, 'PX', keep_ms) end
end
