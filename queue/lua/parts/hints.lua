-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A lane that may be runnable is named by a hint in `ready`. But if limits of a group concern its
-- head, it must not look runnable before there is a permit for it. So then it is in ready:<group>,
-- from where a worker takes it that has a permit, and `groups` names the group.
-- The hash `group` has the group of each such lane, and the epoch has the field `groups` from the
-- first such lane on. A lane in ready:<group> is not examined before LOOK_TTLS have passed, and
-- then only because the worker that has taken it may have died.
local LOOK_TTLS = 2
local with_groups, ignore_groups = epoch[5], false
local function push_ready(lane)
    local group = with_groups and not ignore_groups and call('HGET', P .. 'group', lane)
    if not group then
        call('LPUSH', P .. 'ready', lane)
        return false
    end
    local ready = P .. 'ready:' .. group
    call('ZADD', ready, 'NX', text(now), lane)
    call('PEXPIRE', ready, text(4 * LOOK_TTLS * tonumber(epoch[3] or 0) + 1000))
    call('ZADD', P .. 'groups', 'NX', text(now), group)
    return true
end
local function hint(lane, look_again_ms)
    if push_ready(lane) then look_again_ms = now + LOOK_TTLS * tonumber(epoch[3] or 0) end
    call('ZADD', P .. 'lanes', text(look_again_ms), lane)
end
-- Notes the group of a lane's head: =NAME or !NAME. '', and nil, mean that no limit of a group
-- concerns it.
local function set_group(lane, group)
    if group and group ~= '' then
        if not with_groups then call('HSET', KEYS[1], 'groups', '1') end
        with_groups = true
        call('HSET', P .. 'group', lane, sub(group, 2))
    elseif with_groups then
        call('HDEL', P .. 'group', lane)
    end
end
