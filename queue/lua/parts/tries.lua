-- SPDX-License-Identifier: Apache-2.0
-- @segments
-- `tries` is one hash per segment. The field OFFSET contains "ATTEMPTS FIRST_MS DUE_MS": the number
-- of attempts of the message, the time at which its first failure was recorded, and the time before
-- which the message is not tried again, or 0. The field "OFFSET+" contains the length of the wait
-- until DUE_MS, so that a due time that was set before Redis' clock went back is recognized.
local function tries_of(tp, offset)
    local key = P .. 'tries:' .. segment_name(tp, floor(offset / LW_SEGMENT))
    local v = call('HGET', key, text(offset))
    if not v then return 0, 0, 0 end
    local n, first, due = string.match(v, '^(%d+) (%d+) (%d+)$')
    n, first, due = tonumber(n or 0), tonumber(first or 0), tonumber(due or 0)
    if due > now then
        local wait = tonumber(call('HGET', key, text(offset) .. '+') or '')
        if wait and due - now > wait then due = now end
    end
    return n, first, due
end
local function set_tries(tp, offset, n, first, wait_ms)
    local key = P .. 'tries:' .. segment_name(tp, floor(offset / LW_SEGMENT))
    call('HSET', key, text(offset),
        fmt('%.0f %.0f %.0f', n, first, wait_ms > 0 and now + wait_ms or 0))
    if wait_ms > 0 then call('HSET', key, text(offset) .. '+', text(wait_ms)) end
end
local function forget_tries(tp, offset)
    call('HDEL', P .. 'tries:' .. segment_name(tp, floor(offset / LW_SEGMENT)), text(offset),
        text(offset) .. '+')
end
