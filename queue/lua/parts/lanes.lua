-- SPDX-License-Identifier: Apache-2.0
-- @epoch
local function lane_of(lock) return sub(lock, LOCK_PREFIX) end
local function is_paused(lock)
    if any_paused == nil then any_paused = call('EXISTS', P .. 'paused') == 1 end
    return any_paused and call('SISMEMBER', P .. 'paused', lane_of(lock)) == 1
end

-- Takes a lane out of `lanes`, and its group out of `group` (parts/hints.lua).
local function forget_lane(lane)
    call('ZREM', P .. 'lanes', lane)
    if epoch[5] then call('HDEL', P .. 'group', lane) end
end

-- The scripts add a lane to `lanes` before they create its waiting list, and remove the lane when
-- the list is empty. If a lane is in `lanes` but its list is missing, someone has deleted the list
-- with its messages, Redis has evicted it, or a script failed in the middle. The stream `vanished`
-- reports the lane to the owners of the messages, who read the messages from Kafka again.
local VANISHED_MAX = 10000
local function list_vanished(lane)
    pcall_('XADD', P .. 'vanished', 'MAXLEN', '~', text(VANISHED_MAX), '*', 'lane', lane)
    call('PEXPIRE', P .. 'vanished', text(100 * math.max(tonumber(epoch[3] or 0), 1000)))
end
-- Reports the lane in the stream `vanished` before removing it from `lanes`, because a lane that is
-- not in `lanes` is never examined again.
local function forget_vanished(lane)
    list_vanished(lane)
    forget_lane(lane)
end
