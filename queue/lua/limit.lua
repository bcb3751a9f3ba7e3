#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- limit: one worker states how many messages it has in its handlers and how many more it could
-- start, and gets its share of the places and tokens of the application and of its groups. Called
-- only on shard 0.
-- KEYS    1 epoch, 2 limit, 3 limits, 4 limited
-- ARGV    1 epoch id, 2 worker, 3 number of the statement, which grows with each statement of the
--         worker, 4 ttl_ms, 5 version of the limits that the worker knows (0: none), 6 number of
--         places that it has in use, 7 number of places that it wants in all, and 8 number of
--         tokens that it wants, both without messages of the groups below; 9 number of tokens that
--         it has for these, 10 number of messages of these that it could start, 11 number of
--         messages that it could start in all, 12 number of messages in its handlers; 13 number of
--         limits in its file, then of each: its field in `limits`, and "RUNNING PER_SECOND BURST";
--         then of each group: its name, number of places in use, number of messages that wait,
--         number of tokens that it has, number of messages in its handlers
-- Result: 'LOST', or {places, tokens, first, step, again, waiting, version, limits}, then of each
--         group places, tokens, first, step, waiting
--         places: number of places that the worker has until the statement expires, ttl_ms from
--         now; at least the number in use
--         tokens: the k-th token, counted from 0, may be used from first + k * step µs from now on
--         again: time in ms before which it is pointless to ask again; 0 if the worker got all
--         that it wants
--         waiting: number of other workers that wait for something
--         version: that of the limits in force; 0: there are none, and nothing may start
--         limits: the fields and values of `limits` if the worker knows another version
-- The limits in force are in `limits`: "fleet", "each" (of a group without limits of its own) and
-- "group:GROUP" are "RUNNING PER_SECOND BURST FILE", where 0 is no limit, and FILE is what the file
-- said last, or "-"; "paused" (the fleet) and "paused:GROUP" are the time (ms) since when it is
-- paused; `version` grows with each change. Operators change them (ops/lua/limits.lua). A worker
-- that knows no version sends what its file says. What the file changes since it was last sent goes
-- into force, and where it says the same, the limit in force stays as it is.
-- A statement is absolute: it replaces the worker's statement before. The number of places in use
-- is the sum over all statements, and never counted up and down. A statement without places in use
-- or wanted is deleted. When the statement before has expired, others may have got its places, so
-- only messages in handlers count as in use, whose leases have ended with it. In a quarantine, and
-- after a loss of data until it is over, workers keep the places that they state, and nobody gets a
-- place or a token.
-- Tokens follow each other on the clock of Redis, at distances of `step` µs. The field `next` is
-- the time of the next one. A token whose time is past can still be drawn if it is one of the last
-- `burst`; one whose time is near can be drawn ahead.
-- What is free is dealt out one by one to all workers that want something, beginning with the one
-- that has waited longest. So the caller gets its share, and the others find theirs when they call.
-- A message of a group needs a place and a token of the group and of the fleet. So the fleet is
-- asked only for as many as the groups have, and then the groups give only as many as the fleet.
-- Fields of `limit`: of each statement "w:WORKER": number, places, the time since which the worker
-- waits for something (0: it does not), time of the statement, time when it expires, epoch id;
-- `next`; `since`: time (µs) since when the tokens of groups are known. limit:<group> has the first
-- two, and expires when it says no more than a missing one. limited: groups that have such a table,
-- by the time (ms) at which it expires.
-- @epoch
local HUNGRY_MS, AGAIN_MIN_MS, AGAIN_MAX_MS, FLEET_ARGS, GROUP_ARGS = 1000, 10, 200, 13, 5
local id, worker, number, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local why = refuse(id, '', 0)
if why == 'LOST' then return why end
local key, limits, known, in_file = KEYS[2], KEYS[3], tonumber(ARGV[5]), tonumber(ARGV[13])

-- Reads the statements of the fleet or of a group.
local function look(name)
    local fields, p = call('HGETALL', name), {key = name, in_use = 0, since = now, others = {}}
    local gone = {}
    for i = 1, #fields, 2 do
        local who = sub(fields[i], 3)
        if fields[i] == 'next' then
            p.next_us = tonumber(fields[i + 1])
        elseif fields[i] == 'since' then
            p.known_us = tonumber(fields[i + 1])
        else
            local n, places, waits, at, ends, of =
                string.match(fields[i + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
            local live = n and of == id and now < tonumber(ends)
            if live and who == worker then
                p.mine = tonumber(n)
                if tonumber(waits) > 0 then p.since = tonumber(waits) end
            elseif live then
                p.in_use = p.in_use + tonumber(places)
                local hungry = tonumber(waits) > 0 and now - tonumber(at) < HUNGRY_MS
                p.others[#p.others + 1] = {who = who, since = hungry and tonumber(waits)}
            elseif who ~= worker then
                gone[#gone + 1] = fields[i]
            end
        end
    end
    if #gone > 0 then call('HDEL', name, unpack(gone, 1, math.min(#gone, 1000))) end
    p.hungry, p.before = 1, 0
    for _, o in ipairs(p.others) do
        if o.since then
            p.hungry = p.hungry + 1
            if o.since < p.since or (o.since == p.since and o.who < worker) then
                p.before = p.before + 1
            end
        end
    end
    return p
end

-- Puts what the worker's file says into force, as far as it is new. Returns the version.
local function seed(version)
    local fields, file, changed = call('HGETALL', limits), {}, version == 0
    for i = 1, in_file do file[ARGV[FLEET_ARGS + 2 * i - 1]] = ARGV[FLEET_ARGS + 2 * i] end
    for i = 1, #fields, 2 do
        local said = string.match(fields[i + 1], '^%d+ %d+ %d+ (.+)$')
        if said and said == file[fields[i]] then
            file[fields[i]] = nil
        elseif said and said ~= '-' and not file[fields[i]] then
            call('HDEL', limits, fields[i])
            changed = true
        end
    end
    for i = 1, in_file do
        local field = ARGV[FLEET_ARGS + 2 * i - 1]
        if file[field] then
            call('HSET', limits, field, file[field] .. ' ' .. file[field])
            changed = true
        end
    end
    if not changed then return version end
    version = math.max(version + 1, now)
    call('HSET', limits, 'version', text(version))
    return version
end

local version = tonumber(call('HGET', limits, 'version') or 0)
local fleet, groups = look(key), {}
local late = fleet.mine and fleet.mine >= number
if in_file > 0 and not late then version = seed(version) end
local fleet_limit = call('HMGET', limits, 'fleet', 'paused', 'each')

-- Returns running, per_second, burst of what HMGET found of a limit, and whether it is paused.
local function in_force(found, other)
    local running, rate, burst = string.match(found[1] or other or '', '^(%d+) (%d+) (%d+)')
    return tonumber(running or 0), tonumber(rate or 0), tonumber(burst or 1),
        found[2] or version == 0
end

-- Returns how many of the `free` ones the caller gets if they are dealt out one by one.
local function share(p, free, most)
    return math.max(0, math.min(most, floor((free - p.before + p.hungry - 1) / p.hungry)))
end

local function again_ms(p) return math.max(AGAIN_MIN_MS, math.min(AGAIN_MAX_MS, #p.others)) end

-- Tokens are drawn at most this far ahead, if the `again` of a worker is AGAIN_MAX_MS.
local AHEAD_MAX_US = 1000 * (40 + 2 * AGAIN_MAX_MS)

-- Returns how many of the places that the caller states are its own.
local function held(p, has, in_handlers)
    return p.mine and has or math.min(has, tonumber(in_handlers))
end

-- Decides what the caller gets, and changes nothing. `first_us` is the time of the next token if it
-- is not known.
local function offer(p, has, want, tokens, first_us, running, rate, burst, paused)
    p.running, p.rate, p.burst, p.has, p.places, p.given = running, rate, burst, has,
        math.max(has, want), 0
    local none = why or paused
    if none then
        p.places = has
    elseif running > 0 then
        p.places = has + share(p, running - p.in_use - has, math.max(want - has, 0))
    end
    p.first, p.step = 0, 0
    if rate > 0 then
        -- Workers that wait ask again after `again` ms, so tokens are drawn that far ahead, and
        -- more. If the time of the next token is not known, or a clock that went back has made it
        -- too late, it is as far ahead as any worker may have drawn.
        local ahead, last = 1000 * (40 + 2 * again_ms(p)), now_us + AHEAD_MAX_US
        p.step = 1000000 / rate
        p.next_us = math.min(math.max(p.next_us or first_us, now_us - (burst - 1) * p.step),
            last + p.step)
        p.first = p.next_us - now_us
        if not none and p.next_us <= now_us + ahead then
            p.given = share(p, floor((now_us + ahead - p.next_us) / p.step) + 1, tokens)
        end
    end
    p.waits = p.places < want or (rate > 0 and p.given < tokens)
end

-- Writes what was decided: the statement, and the time of the next token. Returns true if there is
-- anything to write.
local function save(p, keeps)
    local set = {}
    if p.rate > 0 then set = {'next', fmt('%.3f', p.next_us + p.given * p.step)} end
    -- without a limit of places, what the worker wants is no place
    local field, places = 'w:' .. worker, p.running > 0 and p.places or p.has
    if places > 0 or p.waits or keeps then
        -- who got something waits from now on
        if not p.waits then
            p.since = 0
        elseif p.places > p.has or p.given > 0 then
            p.since = now
        end
        set[#set + 1] = field
        set[#set + 1] =
            fmt('%.0f %.0f %.0f %.0f %.0f %s', number, places, p.since, now, now + ttl, id)
    elseif p.mine then
        call('HDEL', p.key, field)
    end
    if #set > 0 then call('HSET', p.key, unpack(set)) end
    return #set > 0
end

local first_arg = FLEET_ARGS + 2 * in_file
local n_groups = floor((#ARGV - first_arg) / GROUP_ARGS)
local changed = version > 0 and version ~= known and call('HGETALL', limits) or {}
-- a statement that arrives after a later one of the same worker changes nothing
if late then
    local out = {tonumber(ARGV[6]), 0, 0, '0', AGAIN_MIN_MS, 0, version, changed}
    for i = 1, n_groups do
        for _, v in ipairs({tonumber(ARGV[first_arg + (i - 1) * GROUP_ARGS + 2]), 0, 0, '0', 0}) do
            out[#out + 1] = v
        end
    end
    return out
end
if n_groups > 0 and not fleet.known_us then
    fleet.known_us = now_us
    call('HSET', key, 'since', text(now_us))
end

-- `could`: number of messages of groups that could start if the fleet lets them
local could = 0
for i = 1, n_groups do
    local at = first_arg + (i - 1) * GROUP_ARGS
    local name, has, more, hand = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]),
        tonumber(ARGV[at + 4])
    local g, found = look(key .. ':' .. name),
        call('HMGET', limits, 'group:' .. name, 'paused:' .. name)
    g.name, has = name, held(g, has, ARGV[at + 5])
    offer(g, has, has + more, math.max(more - hand, 0), fleet.known_us + AHEAD_MAX_US,
        in_force(found, fleet_limit[3]))
    g.hand, g.could = hand, g.places - has
    if g.rate > 0 then g.could = math.min(g.could, hand + g.given) end
    could = could + g.could
    groups[i] = g
end
local has, want, tokens, spare = held(fleet, tonumber(ARGV[6]), ARGV[12]), tonumber(ARGV[7]),
    tonumber(ARGV[8]), tonumber(ARGV[9])
could = math.min(could, tonumber(ARGV[10]))
-- messages without permits of a group get what is left of the handlers
local rest = math.max(tonumber(ARGV[11]) - could, 0)
offer(fleet, has, has + math.min(want - has, rest) + could,
    math.min(tokens, rest) + math.max(could - spare, 0), now_us + AHEAD_MAX_US,
    in_force(fleet_limit))
local left = fleet.places - has
if fleet.rate > 0 then left = math.min(left, fleet.given + spare) end

local out = {fleet.places, fleet.given, floor(fleet.first + 0.5), fmt('%.3f', fleet.step), 0,
    fleet.hungry - 1, version, changed}
local waits, keeps = fleet.waits, false
for _, g in ipairs(groups) do
    g.could = math.min(g.could, left)
    left = left - g.could
    g.places = math.min(g.places, g.has + g.could)
    g.given = math.min(g.given, math.max(g.could - g.hand, 0))
    if save(g) then
        local lasts = math.max(ttl, g.rate > 0
            and math.ceil((g.next_us - now_us + (g.given + g.burst) * g.step) / 1000) or 0)
        call('PEXPIRE', g.key, text(lasts))
        call('ZADD', KEYS[4], text(now + lasts), g.name)
    end
    waits, keeps = waits or g.waits, keeps or g.places > 0 or g.waits
    for _, v in ipairs({g.places, g.given, floor(g.first + 0.5), fmt('%.3f', g.step),
            g.hungry - 1}) do
        out[#out + 1] = v
    end
end
save(fleet, keeps)
call('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now))
out[5] = waits and again_ms(fleet) or 0
return out
