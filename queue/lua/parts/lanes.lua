-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A lane's name out of its lock's.
local LOCK_PREFIX = #P + 6
local function lane_of(lock) return sub(lock, LOCK_PREFIX) end

-- Which of a batch's lanes have waiters; nil if none has, which spares the look at each.
local function who_waits(lanes, first_key, n)
    if call('EXISTS', lanes) == 0 then return nil end
    local names = {}
    for i = 1, n do names[i] = lane_of(KEYS[first_key + i]) end
    return call('ZMSCORE', lanes, unpack(names))
end

local any_paused = nil
local function is_paused(lock)
    if any_paused == nil then any_paused = call('EXISTS', P .. 'paused') == 1 end
    return any_paused and call('SISMEMBER', P .. 'paused', lane_of(lock)) == 1
end

-- A lane stands in `lanes` just while its list exists: every script leaves it so. One that stands there without a list had its list deleted or
-- evicted by others, with the messages in it. The stream `vanished` tells their owners, who have them read from Kafka again.
local VANISHED_MAX = 10000
local function list_vanished(lane)
    pcall_('XADD', P .. 'vanished', 'MAXLEN', '~', text(VANISHED_MAX), '*', 'lane', lane)
    call('PEXPIRE', P .. 'vanished', text(100 * math.max(tonumber(epoch[3] or 0), 1000)))
end
local function forget_vanished(lane) -- told first: a lane that no longer stands in `lanes` is looked at by nobody
    list_vanished(lane)
    call('ZREM', P .. 'lanes', lane)
end
