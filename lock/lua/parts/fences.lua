-- SPDX-License-Identifier: Apache-2.0
-- Functions for time and fences. Each file in this folder is a part, which several scripts use:
-- scripts/embed-lua.sh inserts a part into a script at the line that names the part. Redis defines
-- the functions of a part again in each call of the script, which takes about 0.2 µs per function.
-- So a script names only the parts that it needs, as late as possible.
local call, sub = redis.call, string.sub
local function text(n) return string.format('%.0f', n) end
local clock
local function now_us()
    clock = clock or call('TIME')
    return clock[1] * 1000000 + clock[2]
end
local function now_ms() return math.floor(now_us() / 1000) end

-- Returns the next fence: the largest of the last fence + 1, the time in µs, and `seen` + 1, where
-- `seen` is the largest fence that the caller has seen. So fences grow even after the lock has
-- expired or was released. After a loss of Redis' data they grow if Redis' clock was not set back.
local function next_fence(key, seen)
    return text(math.max((tonumber(call('GET', key)) or 0) + 1, now_us(), tonumber(seen) + 1))
end
-- Stores the fence in its counter. An unused counter expires after keep_ms; '0': it never expires.
local function save_fence(key, fence, keep_ms)
    if keep_ms == '0' then call('SET', key, fence) else call('SET', key, fence, 'PX', keep_ms) end
end
