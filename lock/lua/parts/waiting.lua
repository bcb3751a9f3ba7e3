-- SPDX-License-Identifier: Apache-2.0
-- Waiting clients, and how they are notified of a release. Needs the part `fences`.

-- Publishes the message `what`, which is a key of the lock, to a client's channel. Returns true if
-- the client received the message. On a server that forbids channels, no client receives anything.
-- A client whose name begins with 'p' polls (Redis Cluster): it comes by itself, and keeps its
-- place in a queue until then.
local function tell(client, what)
    if sub(client, 1, 1) == 'p' then return true end
    local heard = redis.pcall('PUBLISH', 'lwl:wake:' .. client, what)
    return type(heard) == 'number' and heard > 0
end
-- Notifies one client of a release. Tries the clients in the order in which they began to wait,
-- until one of them receives the message. Removes each client that was tried from the list.
local function wake(wait)
    local first = call('ZPOPMIN', wait)
    while first[1] and not tell(first[1], wait) do first = call('ZPOPMIN', wait) end
end

-- Adds a client to the list of waiting clients. The list expires a minute after the last call of
-- this function. A client that still waits calls it every few seconds.
local function start_waiting(wait, client)
    if client == '' then return end
    call('ZADD', wait, 'NX', text(now_us()), client)
    call('PEXPIRE', wait, 60000)
end
-- Updates the list of waiting clients when a thread of the client has taken the lock. If `more` is
-- true, other threads of the client still wait, so the client stays in the list. Otherwise the
-- client is removed.
local function stop_waiting(wait, client, more)
    if more then return start_waiting(wait, client) end
    if client ~= '' then call('ZREM', wait, client) end
end
