-- SPDX-License-Identifier: Apache-2.0
-- Queues of a fair or read/write lock. Needs the parts `fences` and `waiting`. A queue is a zset of
-- waiters CLIENT:NUMBER, whose scores are their tickets. `alive` is a zset of clients, whose scores
-- are the times until which the clients count as alive.
local function client_of(waiter) return string.match(waiter, '^[^:]*') end
-- Returns the first waiter in the queue whose client is alive, and the waiter's ticket. Returns nil
-- if there is no such waiter. Removes the waiters in front of it, because their clients count as
-- dead.
local function first_of(queue, alive)
    while true do
        local first = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
        if not first[1] then return nil end
        local till = call('ZSCORE', alive, client_of(first[1]))
        if till and tonumber(till) >= now_ms() then return first[1], tonumber(first[2]) end
        call('ZREM', queue, first[1])
    end
end
-- Notifies the first waiter in the queue whose client can be reached. Removes the waiters in front
-- of it, because their clients have no connection; they return to the queue when they try again.
local function tell_first(queue)
    while true do
        local first = call('ZRANGE', queue, 0, 0)
        if not first[1] or tell(client_of(first[1]), queue) then return end
        call('ZREM', queue, first[1])
    end
end
-- Notifies the waiters that may take the lock now. Must be called only while no writer holds the
-- lock. `readers` is a zset, or nil if the lock is a fair lock.
local function tell_queues(writers, alive, readers, waiting_readers)
    if not readers then return tell_first(writers) end
    local _, writer = first_of(writers, alive)
    local told = {}
    for _, reader in ipairs(call('ZRANGEBYSCORE', waiting_readers, '-inf',
            writer and '(' .. text(writer) or '+inf')) do
        local client = client_of(reader)
        if told[client] == nil then told[client] = tell(client, waiting_readers) end
        if not told[client] then call('ZREM', waiting_readers, reader) end
    end
    for _, heard in pairs(told) do
        if heard then return end
    end
    if call('ZCOUNT', readers, '(' .. text(now_ms()), '+inf') == 0 then tell_first(writers) end
end
