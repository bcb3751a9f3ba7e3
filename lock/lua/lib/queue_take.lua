-- SPDX-License-Identifier: Apache-2.0
-- queue_take: takes a fair lock, or one side of a read/write lock, in the order of tickets
-- KEYS 1 the writer's lock (string), 2 fence counter, 3 queue of writers, 4 zset of live clients;
--      for read/write also 5 the readers' leases (zset), 6 queue of readers
-- ARGV 1 token, 2 ttl_ms, 3 largest fence that the caller has seen,
--      4 lifetime of the fence counter in ms, 5 'r' for a reader, 'w' for a writer,
--      6 the waiter as CLIENT:NUMBER, '' if the caller does not wait,
--      7 the waiter's ticket, '' if it has none yet,
--      8 time in ms for which this call proves that the client is alive,
--      9 '1' if the call is sent again
-- Result: the fence as a string; or {LEFT, ticket}, in which LEFT is the ms until the lock expires,
--      0 if the lock is free but other waiters are first, -1 if the lock has no TTL
-- @fences
-- @waiting
-- @queues
-- @shares
local lock, fence_key, writers, alive, readers, waiting_readers = KEYS[1], KEYS[2], KEYS[3],
    KEYS[4], KEYS[5], KEYS[6]
local token, ttl, seen, keep_ms, reading, waiter, ticket, live_ms, again = ARGV[1], ARGV[2],
    ARGV[3], ARGV[4], ARGV[5] == 'r', ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9] == '1'
local queue = reading and waiting_readers or writers

local function enqueue(left)
    if waiter == '' then return {left, ''} end
    -- A new ticket is larger than all tickets in both queues. It is also at least the present time,
    -- so that tickets keep growing even if Redis loses its data.
    if not ticket then
        ticket = now_us()
        for _, q in ipairs({writers, waiting_readers}) do
            local last = call('ZRANGE', q, -1, -1, 'WITHSCORES')
            if last[2] then ticket = math.max(ticket, tonumber(last[2]) + 1) end
        end
    end
    call('ZADD', queue, text(ticket), waiter)
    call('ZADD', alive, text(now_ms() + live_ms), client_of(waiter))
    call('PEXPIRE', queue, 60000)
    call('PEXPIRE', alive, 60000)
    return {left, text(ticket)}
end

local function granted(fence)
    save_fence(fence_key, fence, keep_ms)
    if waiter ~= '' then call('ZREM', queue, waiter) end
    return fence
end

local held = call('GET', lock)
if held then
    if not reading and sub(held, 1, #token + 1) == token .. ':' then
        -- the caller already holds the lock: this call was sent again because its answer was lost
        call('PEXPIRE', lock, ttl)
        return granted(sub(held, #token + 2))
    end
    local left = call('PTTL', lock)
    -- a PTTL of 0 becomes 1, because the result 0 means that other waiters are first
    return enqueue(left == 0 and 1 or left)
end
if reading and again then
    local value, fence = fence_of_share(readers, token)
    if value then
        add_share(readers, value, ttl)
        return granted(fence)
    end
end

-- From this point on, no writer holds the lock. The caller gets the lock unless an earlier waiter
-- or a reader prevents it.
local writer, writer_ticket = first_of(writers, alive)
if writer == waiter then writer = nil end
if reading then
    if writer and not (ticket and ticket < writer_ticket) then
        if call('ZCOUNT', readers, '(' .. text(now_ms()), '+inf') == 0 then tell_first(writers) end
        return enqueue(0)
    end
    local fence = next_fence(fence_key, seen)
    call('ZREMRANGEBYSCORE', readers, '-inf', text(now_ms()))
    add_share(readers, token .. ':' .. fence, ttl)
    return granted(fence)
end
if writer and not (ticket and ticket < writer_ticket) then
    if not readers then
        tell_first(writers)
    else
        tell_queues(writers, alive, readers, waiting_readers)
    end
    return enqueue(0)
end
if readers then
    call('ZREMRANGEBYSCORE', readers, '-inf', text(now_ms()))
    local last = call('ZRANGE', readers, -1, -1, 'WITHSCORES')
    if last[2] then return enqueue(math.max(tonumber(last[2]) - now_ms(), 1)) end
    local reader, reader_ticket = first_of(waiting_readers, alive)
    if reader and not (ticket and ticket < reader_ticket) then
        tell_queues(writers, alive, readers, waiting_readers)
        return enqueue(0)
    end
end
local fence = next_fence(fence_key, seen)
call('SET', lock, token .. ':' .. fence, 'PX', ttl)
return granted(fence)
