#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- limit: one worker states how many messages it has in its handlers and how many more it could
-- start, and gets its share of the places and tokens of the application and of its groups. Called
-- only on shard 0.
-- KEYS    1 epoch, 2 limit
-- ARGV    1 epoch id, 2 worker, 3 number of the statement, which grows with each statement of the
--         worker, 4 ttl_ms, 5 limits.running (0: no limit), 6 limits.per_second (0: no limit),
--         7 limits.burst, 8 number of places that the worker has in use, 9 number of places that it
--         wants in all, and 10 number of tokens that it wants, both without messages of the groups
--         below; 11 number of tokens that it has for these, 12 number of messages of these that it
--         could start; then of each group: its name, running, per_second, burst, number of places
--         in use, number of messages that wait, number of tokens that it has
-- Result: 'LOST', or {places, tokens, first, step, again, waiting}, then of each group places,
--         tokens, first, step, waiting
--         places: number of places that the worker has until the statement expires, ttl_ms from
--         now; at least the number in use
--         tokens: the k-th token, counted from 0, may be used from first + k * step µs from now on
--         again: time in ms before which it is pointless to ask again; 0 if the worker got all
--         that it wants
--         waiting: number of other workers that wait for something
-- A statement is absolute: it replaces the worker's statement before. The number of places in use
-- is the sum over all statements, and never counted up and down. A statement without places in use
-- or wanted is deleted. In a quarantine, and after a loss of data until it is over, workers keep
-- the places that they state, and nobody gets a place or a token.
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
-- two, and expires when it says no more than a missing one.
-- @epoch
local HUNGRY_MS, AGAIN_MIN_MS, AGAIN_MAX_MS, FLEET_ARGS, GROUP_ARGS = 1000, 10, 200, 12, 7
local id, worker, number, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local why = refuse(id, '', 0)
if why == 'LOST' then return why end
local key = KEYS[2]

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

-- Returns how many of the `free` ones the caller gets if they are dealt out one by one.
local function share(p, free, most)
    return math.max(0, math.min(most, floor((free - p.before + p.hungry - 1) / p.hungry)))
end

local function again_ms(p) return math.max(AGAIN_MIN_MS, math.min(AGAIN_MAX_MS, #p.others)) end

-- Tokens are drawn at most this far ahead, if the `again` of a worker is AGAIN_MAX_MS.
local AHEAD_MAX_US = 1000 * (40 + 2 * AGAIN_MAX_MS)

-- Decides what the caller gets, and changes nothing. `first_us` is the time of the next token if it
-- is not known.
local function offer(p, running, rate, burst, has, want, tokens, first_us)
    p.running, p.rate, p.burst, p.has, p.places, p.given = running, rate, burst, has,
        math.max(has, want), 0
    if why then
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
        if not why and p.next_us <= now_us + ahead then
            p.given = share(p, floor((now_us + ahead - p.next_us) / p.step) + 1, tokens)
        end
    end
    p.waits = p.places < want or p.given < tokens
end

-- Writes what was decided: the statement, and the time of the next token.
local function save(p, keeps)
    local set = {}
    if p.rate > 0 then set = {'next', fmt('%.3f', p.next_us + p.given * p.step)} end
    local field = 'w:' .. worker
    if p.places > 0 or p.waits or keeps then
        -- who got something waits from now on
        if not p.waits then
            p.since = 0
        elseif p.places > p.has or p.given > 0 then
            p.since = now
        end
        set[#set + 1] = field
        set[#set + 1] =
            fmt('%.0f %.0f %.0f %.0f %.0f %s', number, p.places, p.since, now, now + ttl, id)
    elseif p.mine then
        call('HDEL', p.key, field)
    end
    if #set > 0 then call('HSET', p.key, unpack(set)) end
end

local fleet, groups = look(key), {}
local n_groups = floor((#ARGV - FLEET_ARGS) / GROUP_ARGS)
-- a statement that arrives after a later one of the same worker changes nothing
if fleet.mine and fleet.mine >= number then
    local out = {tonumber(ARGV[8]), 0, 0, '0', AGAIN_MIN_MS, 0}
    for i = 1, n_groups do
        for _, v in ipairs({tonumber(ARGV[FLEET_ARGS + (i - 1) * GROUP_ARGS + 5]), 0, 0, '0', 0}) do
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
    local at = FLEET_ARGS + (i - 1) * GROUP_ARGS
    local running, rate, burst, has, more, hand = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]),
        tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]),
        tonumber(ARGV[at + 7])
    local g = look(key .. ':' .. ARGV[at + 1])
    offer(g, running, rate, burst, has, has + more, math.max(more - hand, 0),
        fleet.known_us + AHEAD_MAX_US)
    g.hand, g.could = hand, g.places - has
    if rate > 0 then g.could = math.min(g.could, hand + g.given) end
    could = could + g.could
    groups[i] = g
end
local has, want, tokens, spare = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]),
    tonumber(ARGV[11] or 0)
could = math.min(could, tonumber(ARGV[12] or 0))
offer(fleet, tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), has, want + could,
    tokens + math.max(could - spare, 0), now_us + AHEAD_MAX_US)
local left = fleet.places - has
if fleet.rate > 0 then left = math.min(left, fleet.given + spare) end

local out = {fleet.places, fleet.given, floor(fleet.first + 0.5), fmt('%.3f', fleet.step), 0,
    fleet.hungry - 1}
local waits, keeps = fleet.waits, false
for _, g in ipairs(groups) do
    g.could = math.min(g.could, left)
    left = left - g.could
    g.places = math.min(g.places, g.has + g.could)
    g.given = math.min(g.given, math.max(g.could - g.hand, 0))
    save(g)
    call('PEXPIRE', g.key, text(math.max(ttl,
        g.rate > 0 and math.ceil((g.next_us - now_us + (g.given + g.burst) * g.step) / 1000) or 0)))
    waits, keeps = waits or g.waits, keeps or g.places > 0 or g.waits
    for _, v in ipairs({g.places, g.given, floor(g.first + 0.5), fmt('%.3f', g.step),
            g.hungry - 1}) do
        out[#out + 1] = v
    end
end
save(fleet, keeps)
out[5] = waits and again_ms(fleet) or 0
return out
