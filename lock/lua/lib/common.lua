-- What the lock scripts share; tools/embed-lua.sh puts it where a script says so.
local call, sub = redis.call, string.sub
local function text(n) return string.format('%.0f', n) end
local clock
local function now_us()
    clock = clock or call('TIME')
    return clock[1] * 1000000 + clock[2]
end
local function now_ms() return math.floor(now_us() / 1000) end

-- Fences grow across expiry, release and a wiped Redis: the largest of last + 1, the time in microseconds, and seen + 1.
local function next_fence(key, seen) return text(math.max((tonumber(call('GET', key)) or 0) + 1, now_us(), tonumber(seen) + 1)) end
-- keep_ms: how long a counter that nobody uses is remembered; '0' for ever.
local function save_fence(key, fence, keep_ms)
    if keep_ms == '0' then call('SET', key, fence) else call('SET', key, fence, 'PX', keep_ms) end
end

-- True where somebody heard it. A server that forbids channels: nobody.
local function tell(client, what)
    local heard = redis.pcall('PUBLISH', 'lwl:wake:' .. client, what)
    return type(heard) == 'number' and heard > 0
end
-- Tells the client that waits longest; one whose connection is gone is forgotten, and the next is told.
local function wake(wait)
    local first = call('ZPOPMIN', wait)
    while first[1] and not tell(first[1], wait) do first = call('ZPOPMIN', wait) end
end

-- A client stays known as waiting for a minute after it was last heard of; it comes again every few seconds.
local function start_waiting(wait, client)
    if client == '' then return end
    call('ZADD', wait, 'NX', text(now_us()), client)
    call('PEXPIRE', wait, 60000)
end
-- It has the lock now; more: others of it wait on.
local function stop_waiting(wait, client, more)
    if more then return start_waiting(wait, client) end
    if client ~= '' then call('ZREM', wait, client) end
end

-- Queues: zsets of waiters CLIENT:NUMBER, scored by their tickets. alive: clients, scored by the time until which they count as living.
local function client_of(waiter) return string.match(waiter, '^[^:]*') end
-- The first waiter that lives, and its ticket; the dead before it go.
local function first_of(queue, alive)
    while true do
        local first = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
        if not first[1] then return nil end
        local till = call('ZSCORE', alive, client_of(first[1]))
        if till and tonumber(till) >= now_ms() then return first[1], tonumber(first[2]) end
        call('ZREM', queue, first[1])
    end
end
-- Tells the first that hears it; who does not has lost its connection, and loses its place until it comes again.
local function tell_first(queue)
    while true do
        local first = call('ZRANGE', queue, 0, 0)
        if not first[1] or tell(client_of(first[1]), queue) then return end
        call('ZREM', queue, first[1])
    end
end
-- After something changed: whoever may have it now is told. The string `lock` is free of a writer; readers: a zset, or nil for a fair lock.
local function tell_queues(writers, alive, readers, waiting_readers)
    if not readers then return tell_first(writers) end
    local _, writer = first_of(writers, alive)
    local told = {}
    for _, reader in ipairs(call('ZRANGEBYSCORE', waiting_readers, '-inf', writer and '(' .. text(writer) or '+inf')) do
        local client = client_of(reader)
        if told[client] == nil then told[client] = tell(client, waiting_readers) end
        if not told[client] then call('ZREM', waiting_readers, reader) end
    end
    for _, heard in pairs(told) do
        if heard then return end
    end
    if call('ZCOUNT', readers, '(' .. text(now_ms()), '+inf') == 0 then tell_first(writers) end
end

-- A lease in a zset of leases TOKEN:FENCE, scored by their ends; the key itself lives as long as the longest.
local function add_share(leases, value, ttl)
    call('ZADD', leases, text(now_ms() + ttl), value)
    if call('PTTL', leases) < tonumber(ttl) then call('PEXPIRE', leases, ttl) end
end
-- The fence of a lease with this token: the call was sent again because its answer was lost.
local function fence_of_share(leases, token)
    for _, value in ipairs(call('ZRANGE', leases, 0, -1)) do
        if sub(value, 1, #token + 1) == token .. ':' then return value, sub(value, #token + 2) end
    end
end
local function share_is_live(leases, value)
    local till = call('ZSCORE', leases, value)
    return till and tonumber(till) > now_ms()
end
