#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- enter: joins the epoch of this shard, or starts a new epoch.
-- KEYS    1 epoch, 2 fence, 3 lanes
-- ARGV    1 candidate for the id of a new epoch (random),
--         2 life of the server (run_id/master_replid), 3 ttl_ms,
--         4 id of the epoch in which the server's clock jumped, or '',
--         5 name of the host, or '' if its clock is not to be compared,
--         6 Redis time minus the caller's wall clock, in ms,
--         7 highest fence that the caller has seen,
--         8 history of the server (run_id/number of bytes read as a replica, queue/life.h), or '',
--         9 old_ms: time in ms for which leases of epochs that the caller knew before may still
--         live, or 0,
--         10.. name and value of each part of the schema, on which all workers must agree
-- Result: {'OK', id, Redis time in ms, not_before in ms, ttl_ms of the epoch, '1' while no commit
--         of the group is known (lift.lua), otherwise ''},
--         or {'REFUSED', part of the schema that differs, its value in the epoch}
-- Order of writes: the values by which this script recognizes the end of an epoch (life, history
-- and offset:HOST) are overwritten only after the new epoch is written. So if a call fails between
-- these writes, the next call recognizes the end of the same epoch.
local epoch_key, fence_key, lanes_key = KEYS[1], KEYS[2], KEYS[3]
local candidate, life, ttl, jumped, host, offset, fence = ARGV[1], ARGV[2], tonumber(ARGV[3]),
    ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local history, old_ms = ARGV[8], tonumber(ARGV[9])
local time = redis.call('TIME')
local now = math.floor((tonumber(time[1]) * 1000000 + tonumber(time[2])) / 1000)
local function text(n) return string.format('%.0f', n) end

local id = redis.call('HGET', epoch_key, 'id')
for i = 10, #ARGV, 2 do
    local theirs = redis.call('HGET', epoch_key, ARGV[i])
    if theirs and theirs ~= ARGV[i + 1] then return {'REFUSED', ARGV[i], theirs} end
end

-- A new replication id does not mean a new life if a replica was merely attached to this server or
-- detached from it, and this server itself has not been a replica since its life was recorded.
local known_life, known_history = redis.call('HGET', epoch_key, 'life'),
    redis.call('HGET', epoch_key, 'history')
local same = known_life == life or (history ~= '' and known_history == history)
for i = 10, #ARGV, 2 do redis.call('HSET', epoch_key, ARGV[i], ARGV[i + 1]) end
local used = tonumber(redis.call('HGET', epoch_key, 'ttl_ms') or 0)
if ttl > used then
    redis.call('HSET', epoch_key, 'ttl_ms', text(ttl))
    used = ttl
end

-- "offset:HOST" is the difference between Redis time and the wall clock of a host. If the
-- difference for the caller's host has changed, the clock of Redis has jumped, and leases have
-- ended at the wrong time. If the host is new and its difference is far from those of all known
-- hosts, that counts as a jump too, but only once, because from then on the difference for this
-- host is known.
local slack, moved, mine = used / 4, false, redis.call('HGET', epoch_key, 'offset:' .. host)
if host == '' then
    mine = true
elseif mine then
    if math.abs(tonumber(mine) - offset) > slack then
        moved = true
    end
else
    local known, near = false, false
    local all = redis.call('HGETALL', epoch_key)
    for i = 1, #all, 2 do
        if string.sub(all[i], 1, 7) == 'offset:' then
            known = true
            if math.abs(tonumber(all[i + 1]) - offset) <= slack then near = true end
        end
    end
    moved = known and not near
end

-- quarantine_ms is the length of the quarantine. It covers the largest TTL of this epoch, and also
-- old leases that only a caller knows (for example if Redis was wiped while a worker with a longer
-- TTL was away). Later quarantines do not cover these old leases, so a TTL that is no longer used
-- is forgotten.
local not_before = tonumber(redis.call('HGET', epoch_key, 'not_before') or 0)
local length = math.max(tonumber(redis.call('HGET', epoch_key, 'quarantine_ms') or 0), used)
if fence > tonumber(redis.call('GET', fence_key) or 0) then
    redis.call('SET', fence_key, text(fence))
end
if not id then redis.call('HSET', epoch_key, 'first', '1') end
if not id or not same or jumped == id or moved then
    -- Commits name a fleet by the first digits of its epoch. Workers may still commit under the
    -- epoch that ends here. Those who never knew it read here that it is this fleet's.
    local was = id and string.sub(id, 1, 16) .. ' ' .. (redis.call('HGET', epoch_key, 'was') or '')
    was = string.sub(was or '', 1, 8 * 17 - 1)
    id = candidate
    -- the time left of the last quarantine does not count if it exceeds the length of that
    -- quarantine, because then the clock has gone back
    local left = not_before - now
    length = math.max(used, old_ms, left <= length and left or 0)
    redis.call('HSET', epoch_key, 'id', id, 'was', was, 'not_before', text(now + length),
        'quarantine_ms', text(length))
    -- The score of a lane in `lanes` is the time at which tend examines the lane. A score that lies
    -- more than the largest TTL ahead was set by another clock, so it is lowered to the largest TTL
    -- from now. One call does this for a limited number of lanes, and tend finds the other lanes.
    for _, lane in ipairs(redis.call('ZRANGEBYSCORE', lanes_key, '(' .. text(now + used), '+inf',
            'LIMIT', 0, 2000)) do
        redis.call('ZADD', lanes_key, text(now + used), lane)
    end
elseif not_before > now + length then
    redis.call('HSET', epoch_key, 'not_before', text(now + length))
elseif not_before > now and old_ms > length then
    -- extend the quarantine, because the worker that began it knew only of shorter leases
    not_before = not_before + old_ms - length
    redis.call('HSET', epoch_key, 'not_before', text(not_before), 'quarantine_ms',
        text(old_ms))
end
if known_life ~= life or known_history ~= history then
    redis.call('HSET', epoch_key, 'life', life, 'history', history)
end
-- After a jump of Redis' clock, the recorded differences from the clocks of other hosts
-- ("offset:HOST") are wrong. They are deleted only after the new epoch has begun. So if this call
-- fails earlier and is sent again, the second call notices the same jump.
if moved and mine then
    for _, f in ipairs(redis.call('HKEYS', epoch_key)) do
        if string.sub(f, 1, 7) == 'offset:' and f ~= 'offset:' .. host then
            redis.call('HDEL', epoch_key, f)
        end
    end
end
if moved or not mine then redis.call('HSET', epoch_key, 'offset:' .. host, text(offset)) end
return {'OK', id, text(now), redis.call('HGET', epoch_key, 'not_before'), text(used),
    redis.call('HGET', epoch_key, 'first') or ''}
