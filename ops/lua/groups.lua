#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- groups: read what runs and waits under limits, to be shown to operators.
-- KEYS 1 epoch, 2 limit, 3 limits. Shard 0 knows what runs, and each shard knows its lanes.
-- ARGV names of groups
-- Result: Redis' time in ms, then four values for the fleet and for each group:
--      1 number of messages that run, as workers have stated (with limits.running: number of places
--        that they have, of which they are about to use some)
--      2 time in ms since when a worker that waits for a permit has got none; 0: no worker waits
--      3 time in ms since when it is paused; 0: it is not
--      4 number of lanes that wait in this shard for a permit of the group; 0 for the fleet
-- @epoch
local HUNGRY_MS = 1000
local id, out = epoch[1], {text(now)}

local function add(table, paused, ready)
    local fields, running, since = call('HGETALL', table), 0, 0
    for i = 2, #fields, 2 do
        local places, waits, at, ends, of =
            string.match(fields[i], '^%d+ (%d+) (%d+) (%d+) (%d+) (.*)$')
        if places and of == id and now < tonumber(ends) then
            running = running + tonumber(places)
            waits = tonumber(waits)
            if waits > 0 and now - tonumber(at) < HUNGRY_MS and (since == 0 or waits < since) then
                since = waits
            end
        end
    end
    out[#out + 1] = text(running)
    out[#out + 1] = text(since)
    out[#out + 1] = call('HGET', KEYS[3], paused) or '0'
    out[#out + 1] = text(ready and call('ZCARD', ready) or 0)
end

add(KEYS[2], 'paused')
for _, name in ipairs(ARGV) do
    add(KEYS[2] .. ':' .. name, 'paused:' .. name, P .. 'ready:' .. name)
end
return out
