#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- limit: one worker states how many messages it has in its handlers and how many more it could
-- start, and gets its share of the application's places and tokens. Called only on shard 0.
-- KEYS    1 epoch, 2 limit
-- ARGV    1 epoch id, 2 worker, 3 number of the statement, which grows with each statement of the
--         worker, 4 ttl_ms, 5 limits.running (0: no limit), 6 limits.per_second (0: no limit),
--         7 limits.burst, 8 number of places that the worker has in use, 9 number of places that it
--         wants in all, 10 number of tokens that it wants
-- Result: 'LOST', or {places, tokens, first, step, again, waiting}
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
-- Field of a statement, "w:WORKER": number, places, the time since which the worker waits for
-- something (0: it does not), time of the statement, time when it expires, epoch id
-- @epoch
local HUNGRY_MS, AGAIN_MIN_MS, AGAIN_MAX_MS = 1000, 10, 200
local id, worker, number, ttl, running, rate, burst, has, want, tokens = ARGV[1], ARGV[2],
    tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]),
    tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local why = refuse(id, '', 0)
if why == 'LOST' then return why end
local key = KEYS[2]
local fields, next_us, mine, gone = call('HGETALL', key), nil, nil, {}
local others, in_use, since = {}, 0, now
for i = 1, #fields, 2 do
    local who = sub(fields[i], 3)
    if fields[i] == 'next' then
        next_us = tonumber(fields[i + 1])
    else
        local n, places, waits, at, ends, of =
            string.match(fields[i + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
        local live = n and of == id and now < tonumber(ends)
        if live and who == worker then
            mine = tonumber(n)
            if tonumber(waits) > 0 then since = tonumber(waits) end
        elseif live then
            in_use = in_use + tonumber(places)
            local hungry = tonumber(waits) > 0 and now - tonumber(at) < HUNGRY_MS
            others[#others + 1] = {who = who, since = hungry and tonumber(waits)}
        elseif who ~= worker then
            gone[#gone + 1] = fields[i]
        end
    end
end
-- a statement that arrives after a later one of the same worker changes nothing
if mine and mine >= number then return {has, 0, 0, '0', AGAIN_MIN_MS, 0} end
if #gone > 0 then call('HDEL', key, unpack(gone, 1, math.min(#gone, 1000))) end

local hungry, before = 1, 0
for _, o in ipairs(others) do
    if o.since then
        hungry = hungry + 1
        if o.since < since or (o.since == since and o.who < worker) then before = before + 1 end
    end
end
-- Returns how many of the `free` ones the caller gets if they are dealt out one by one.
local function share(free, most)
    return math.max(0, math.min(most, floor((free - before + hungry - 1) / hungry)))
end

local again = math.max(AGAIN_MIN_MS, math.min(AGAIN_MAX_MS, #others))
local places, given, first, step = math.max(has, want), 0, 0, 0
if why then
    places = has
elseif running > 0 then
    places = has + share(running - in_use - has, math.max(want - has, 0))
end
local set = {}
if rate > 0 then
    -- Workers that wait ask again after `again` ms, so tokens are drawn that far ahead, and more.
    -- If the time of the next token is not known, or a clock that went back has made it too late,
    -- it is as far ahead as any worker may have drawn.
    local ahead, last = 1000 * (40 + 2 * again), now_us + 1000 * (40 + 2 * AGAIN_MAX_MS)
    step = 1000000 / rate
    next_us = math.min(math.max(next_us or last, now_us - (burst - 1) * step), last + step)
    first = next_us - now_us
    if not why and next_us <= now_us + ahead then
        given = share(floor((now_us + ahead - next_us) / step) + 1, tokens)
    end
    set = {'next', fmt('%.3f', next_us + given * step)}
end
local waits = places < want or given < tokens
local field = 'w:' .. worker
if places > 0 or waits then
    -- who got something waits from now on
    if not waits then
        since = 0
    elseif places > has or given > 0 then
        since = now
    end
    set[#set + 1] = field
    set[#set + 1] = fmt('%.0f %.0f %.0f %.0f %.0f %s', number, places, since, now, now + ttl, id)
elseif mine then
    call('HDEL', key, field)
end
if #set > 0 then call('HSET', key, unpack(set)) end
return {places, given, floor(first + 0.5), fmt('%.3f', step), waits and again or 0,
    hungry - 1}
