-- SPDX-License-Identifier: Apache-2.0
-- Clients that wait, and how they are told of a release. Needs the part `fences`.

-- Publishes to a client's channel. Returns true if the client received it; on a server that forbids
-- channels no client does. A client whose name begins with 's' has sharded channels (Redis
-- Cluster): `what` is a key of the lock, and the channel is in its slot.
local function tell(client, what)
    local heard
    if sub(client, 1, 1) == 's' then
        local tag = string.match(what, '{([^}]*)}') or ''
        heard = redis.pcall('SPUBLISH', 'lwl:wake:{' .. (tag ~= '' and tag or what) .. '}:' .. client, what)
    else
        heard = redis.pcall('PUBLISH', 'lwl:wake:' .. client, what)
    end
    return type(heard) == 'number' and heard > 0
end
-- Announces a release to the client that has waited longest. If nothing receives the message,
-- forgets that client and tells the next.
local function wake(wait)
    local first = call('ZPOPMIN', wait)
    while first[1] and not tell(first[1], wait) do first = call('ZPOPMIN', wait) end
end

-- Notes that a client waits. Redis remembers the client for a minute, and a client that still waits
-- calls again every few seconds.
local function start_waiting(wait, client)
    if client == '' then return end
    call('ZADD', wait, 'NX', text(now_us()), client)
    call('PEXPIRE', wait, 60000)
end
-- Notes that a thread of the client has the lock. If `more` is true, other threads of the client
-- still wait, so the client stays in the list.
local function stop_waiting(wait, client, more)
    if more then return start_waiting(wait, client) end
    if client ~= '' then call('ZREM', wait, client) end
end
