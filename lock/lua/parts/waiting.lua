-- SPDX-License-Identifier: Apache-2.0
-- Clients that wait, and how they are told of a release. Needs the part `fences`.

-- Publishes to a client's channel. Returns true if the client received it; on a server that forbids channels no client does.
local function tell(client, what)
    local heard = redis.pcall('PUBLISH', 'lwl:wake:' .. client, what)
    return type(heard) == 'number' and heard > 0
end
-- Tells the client that has waited longest. If its connection is gone, forgets it and tells the next.
local function wake(wait)
    local first = call('ZPOPMIN', wait)
    while first[1] and not tell(first[1], wait) do first = call('ZPOPMIN', wait) end
end

-- Notes that a client waits. This is remembered for a minute, and a client that still waits says so again every few seconds.
local function start_waiting(wait, client)
    if client == '' then return end
    call('ZADD', wait, 'NX', text(now_us()), client)
    call('PEXPIRE', wait, 60000)
end
-- Notes that the client has the lock; with `more`, other threads of it still wait.
local function stop_waiting(wait, client, more)
    if more then return start_waiting(wait, client) end
    if client ~= '' then call('ZREM', wait, client) end
end
