-- SPDX-License-Identifier: Apache-2.0
-- What the lane scripts share; scripts/embed-lua.sh puts it where a script says so. Reads the epoch and the time once a call.
-- KEYS[1] is always lw:{NAME.SHARD}:epoch; every other name begins with the same tag, so all live in one slot. Names of messages found
-- inside a waiting list (their state and tries) can't be declared before the list is read; they are made from that tag.
-- Redis does not roll back a script that fails in the middle. So a script writes in an order in which every prefix is a safe state, whether
-- or not the call is sent again: "A script that fails in the middle" in doc/explanation/protocol.md.
local P = string.sub(KEYS[1], 1, -6)
local floor, fmt, sub, find, byte, call, pcall_ = math.floor, string.format, string.sub, string.find, string.byte, redis.call, redis.pcall
local SEGMENT = 16384
local KEYS, ARGV = KEYS, ARGV
local PRUNE_MAX = 4096
local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = floor(now_us / 1000)
local epoch = call('HMGET', KEYS[1], 'id', 'not_before', 'ttl_ms', 'first')

-- LOST: another epoch. JUMP: Redis time is not what the caller expects. QUARANTINE: leases of an earlier epoch may still be live; or, unless
-- a command asks, the group may have no commit yet (`first`), and before it has one no handler is given anything (lift.lua).
local function refuse(id, expected_ms, slack_ms, is_command)
    if epoch[1] ~= id then return 'LOST' end
    if expected_ms ~= '' and math.abs(now - tonumber(expected_ms)) > tonumber(slack_ms) then return 'JUMP' end
    if epoch[2] and now < tonumber(epoch[2]) or epoch[4] and not is_command then return 'QUARANTINE' end
    return nil
end

local function text(n) return fmt('%.0f', n) end

-- Fences grow across expiry, release and a wiped Redis: max(last + 1, time in microseconds). A call that grants takes `reserve` numbers at
-- once: the i-th message that it grants under a lane's lock has fence_base + i, from 0.
local fence_base = nil
local function take_fences(reserve)
    if fence_base then return end
    fence_base = math.max(tonumber(call('GET', P .. 'fence') or 0) + 1, now_us)
    call('SET', P .. 'fence', text(fence_base + reserve - 1))
end

-- A lock's value is TOKEN:FENCE.
local function is_mine(value, token)
    return value and find(value, token, 1, true) == 1 and string.byte(value, #token + 1) == 58
end

-- Returns the lock's remaining ms, as PTTL. A lock is set for at most the largest TTL in use, "backoff:MS" for MS. If it has longer to
-- go, it was set before Redis' clock went back and nobody would end it in time, so this cuts it to its maximum. A bare "backoff", of an
-- older version, does not tell its length and stays as it is.
local function is_backoff(value) return value == 'backoff' or find(value, '^backoff:%d+$') ~= nil end
local function lock_left(lock)
    local left, most = call('PTTL', lock), tonumber(epoch[3] or 0)
    if left <= most or most == 0 then return left end
    local value = pcall_('GET', lock)
    if type(value) ~= 'string' then return left end
    if is_backoff(value) then most = tonumber(sub(value, 9)) or left end
    if left <= most then return left end
    call('PEXPIRE', lock, text(most))
    return most
end
local function set_backoff(lock, wait_ms) call('SET', lock, 'backoff:' .. text(wait_ms), 'PX', text(wait_ms)) end

-- A replayed message (queue/envelope.h: replay > 0) is one of a partition "TOPIC:PARTITION#REPLAY" that nobody owns: its state and tries are its
-- own, it has no floor, and what is known of the original does not drop it. Its marks go with time, long after it left its list.
local REPLAY_MARK_S = 604800

-- States, two bits an offset, four a byte, the first in the highest bits. A call reads the pages of a segment that it needs, many as one where
-- it names them; what was written is seen by later reads of the call; save_states writes it back, of a page what stands between its first and
-- its last change. Nothing that relies on a state is written before it: not the end of a list that held what has finished, not the end of a
-- lock. finish_unsaved: a message has been found finished by this call, and Redis does not know yet.
local finish_unsaved = false
local floors, segments, dirty = {}, {}, {}
local DIVISOR = {[0] = 64, 16, 4, 1}
local PAGE = 64 -- bytes
local function floor_of(tp)
    local f = floors[tp]
    if not f then
        f = tonumber(call('HGET', P .. 'floor', tp) or 0)
        floors[tp] = f
    end
    return f
end
local function segment_name(tp, number) return tp .. ':' .. text(number) end
local function segment_at(tp, number, key)
    local mine = segments[tp]
    if not mine then
        mine = {}
        segments[tp] = mine
    end
    local s = mine[number]
    if not s then
        s = {key = key or P .. 'state:' .. segment_name(tp, number), number = number, first = 0, page = {}}
        mine[number] = s
    end
    return s
end
local function segment_of(tp, offset) return segment_at(tp, (offset - offset % SEGMENT) / SEGMENT) end
-- s.page, from the byte s.first on, is what was looked at last; pages that were read stand in s by their number, one that spans several by each.
local function read_pages(s, first, last)
    local page = {byte(call('GETRANGE', s.key, first * PAGE, last * PAGE + PAGE - 1), 1, -1)}
    for i = #page + 1, (last - first + 1) * PAGE do page[i] = 0 end
    page.first = first * PAGE
    for n = first, last do s[n] = page end
    return page
end
local function turn_to(s, at)
    local n = floor(at / PAGE)
    local page = s[n] or read_pages(s, n, n)
    s.page, s.first = page, page.first
    return page[at - page.first + 1]
end
local function get_state(s, index)
    local k = index % 4
    local at = (index - k) / 4
    local b = s.page[at - s.first + 1] or turn_to(s, at)
    if b == 0 then return 0 end
    local d = DIVISOR[k]
    return (b - b % d) / d % 4
end
local function put_state(s, index, state) -- never down; the floor is the caller's to look at
    local k = index % 4
    local at, d = (index - k) / 4, DIVISOR[k]
    local b = s.page[at - s.first + 1] or turn_to(s, at)
    local was = (b - b % d) / d % 4
    if was >= 2 or was == state then return end
    local page, i = s.page, at - s.first + 1
    page[i] = b + (state - was) * d
    if not page.lo then
        page.lo, page.hi, page.key, page.segment = i, i, s.key, s.number
        dirty[#dirty + 1] = page
    elseif i < page.lo then
        page.lo = i
    elseif i > page.hi then
        page.hi = i
    end
end
local function state_of(tp, offset) return get_state(segment_of(tp, offset), offset % SEGMENT) end
local function finished(tp, offset) return offset < floor_of(tp) or state_of(tp, offset) >= 2 end
local function set_state(tp, offset, state) -- never below the floor
    if offset >= floor_of(tp) then put_state(segment_of(tp, offset), offset % SEGMENT, state) end
end
-- Of a partition the oldest go first: a later message of a key must never be known as done without those before it.
local function is_older(a, b)
    if a.segment ~= b.segment then return a.segment < b.segment end
    return a.first < b.first
end
local function save_states()
    if #dirty > 1 then table.sort(dirty, is_older) end
    for _, page in ipairs(dirty) do
        call('SETRANGE', page.key, page.first + page.lo - 1, string.char(unpack(page, page.lo, page.hi)))
        if find(page.key, '#%d+:%d+$') then call('EXPIRE', page.key, REPLAY_MARK_S) end
        page.lo = nil
    end
    dirty, finish_unsaved = {}, false
end

-- The batch's partitions, as gate and settle name them: KEYS from first_key on G × (state segment, tries segment), ARGV from `at` on
-- G × (topic:partition, number of the segment, first and last byte to read at once, 1 and 0 for none: where its messages are few and far
-- apart, each has its page read). A message's place is three bytes: which of these, from 1, and its index in the segment.
local groups = {}
local function take_groups(n, first_key, at)
    if n == 0 then return end
    local names, tries = {}, {}
    for g = 1, n do tries[g] = KEYS[first_key + 2 * g - 1] end
    local any_tries = call('EXISTS', unpack(tries)) > 0
    for g = 1, n do
        local tp, number = ARGV[at], tonumber(ARGV[at + 1])
        local first, last = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
        at = at + 4
        local s = segment_at(tp, number, KEYS[first_key + 2 * g - 2])
        s.tp, s.base, s.has_tries = tp, number * SEGMENT, any_tries and call('EXISTS', tries[g]) == 1
        if first <= last then read_pages(s, floor(first / PAGE), floor(last / PAGE)) end
        groups[g], names[g] = s, tp
    end
    local now_floors = call('HMGET', KEYS[3], unpack(names))
    for g = 1, n do
        floors[names[g]] = tonumber(now_floors[g] or 0)
        groups[g].floor = floors[names[g]]
    end
end
-- One look at all the bytes of a string of places.
local function bytes_of(s)
    if #s <= 4000 then return {byte(s, 1, -1)} end
    local out = {}
    for i = 1, #s, 4000 do
        local some = {byte(s, i, i + 3999)}
        for k = 1, #some do out[i + k - 1] = some[k] end
    end
    return out
end

-- Raises a floor, never lowers it, and deletes the segments that it passed: SEGMENTS_MAX a call, of all partitions together. What a call
-- leaves is noted in `sweep` (TOPIC:PARTITION -> its first segment) before the floor is raised, so that a later call finds it whatever
-- happens to this one. from: below it nothing was ever written, where no floor is known; then there is little to delete, and nothing but
-- the last SEGMENTS_MAX segments is looked at. False: segments are left, and the caller is to ask
-- again. only_raise: nothing is done where the floor does not rise.
local SEGMENTS_MAX = 4096
local segments_left = SEGMENTS_MAX
local any_sweep = nil
local function raise_floor(tp, committed, from, only_raise)
    local known = call('HGET', P .. 'floor', tp)
    local was = tonumber(known or from)
    if any_sweep == nil then any_sweep = call('EXISTS', P .. 'sweep') == 1 end
    local left = any_sweep and tonumber(call('HGET', P .. 'sweep', tp) or '')
    local raised = not known or committed > was
    if not raised and (only_raise or not left) then return true end
    local to = raised and committed or was
    local first, last = left or floor(was / SEGMENT), floor(to / SEGMENT) - 1
    if not known and not left then first = math.max(first, last + 1 - SEGMENTS_MAX) end
    if first <= last and not left then call('HSET', P .. 'sweep', tp, text(first)) end
    if raised then call('HSET', P .. 'floor', tp, text(to)) end
    floors[tp] = to
    local stop = math.min(last, first + segments_left - 1)
    for segment = first, stop do
        local s = tp .. ':' .. text(segment)
        call('DEL', P .. 'state:' .. s, P .. 'tries:' .. s)
    end
    segments_left = segments_left - math.max(stop + 1 - first, 0)
    if stop < last then
        call('HSET', P .. 'sweep', tp, text(stop + 1))
        any_sweep = true
        return false
    end
    if left or first <= last then call('HDEL', P .. 'sweep', tp) end
    return true
end

-- tries: one hash per segment; per message "ATTEMPTS FIRST_MS DUE_MS": attempts so far, and times for dead letters and due retries. The
-- field "OFFSET+" holds how long the message was to wait, to recognise due times that were set before Redis' clock went back.
local function tries_of(tp, offset)
    local key = P .. 'tries:' .. segment_name(tp, floor(offset / SEGMENT))
    local v = call('HGET', key, text(offset))
    if not v then return 0, 0, 0 end
    local n, first, due = string.match(v, '^(%d+) (%d+) (%d+)$')
    n, first, due = tonumber(n or 0), tonumber(first or 0), tonumber(due or 0)
    if due > now then
        local wait = tonumber(call('HGET', key, text(offset) .. '+') or '')
        if wait and due - now > wait then due = now end
    end
    return n, first, due
end
local function set_tries(tp, offset, n, first, wait_ms)
    local key = P .. 'tries:' .. segment_name(tp, floor(offset / SEGMENT))
    call('HSET', key, text(offset), fmt('%.0f %.0f %.0f', n, first, wait_ms > 0 and now + wait_ms or 0))
    if wait_ms > 0 then call('HSET', key, text(offset) .. '+', text(wait_ms)) end
end
local function forget_tries(tp, offset)
    call('HDEL', P .. 'tries:' .. segment_name(tp, floor(offset / SEGMENT)), text(offset), text(offset) .. '+')
end

-- Envelopes: see queue/envelope.h.
local function identity_of(envelope)
    local topic, partition, offset, replay, n_dedup = string.match(envelope, '^1 (%S+) (%d+) (%d+) (%d+) %-?%d+ %-?%d+ %-?%d+ (%d+) ')
    if not topic then return nil end
    if replay ~= '0' then partition = partition .. '#' .. replay end
    return topic .. ':' .. partition, tonumber(offset), n_dedup
end
local function dedup_of(envelope)
    local head, size = string.match(envelope, '^([^\n]*)\n'), nil
    if not head then return '' end
    size = tonumber(string.match(head, '^%d+ %S+ %d+ %d+ %d+ %-?%d+ %-?%d+ %-?%d+ (%d+) ') or 0)
    return sub(envelope, #head + 2, #head + 1 + size)
end

-- Business dedup: is this id recorded by another message?
local duplicates = 0
local function is_duplicate(dedup, tp, offset)
    if dedup == '' then return false end
    local by = pcall_('GET', P .. 'dedup:' .. dedup)
    return type(by) == 'string' and by ~= tp .. ':' .. text(offset)
end

-- A lane's name out of its lock's.
local LOCK_PREFIX = #P + 6
local function lane_of(lock) return sub(lock, LOCK_PREFIX) end

-- Which of a batch's lanes have waiters: nil where none has, which spares the look at each.
local function who_waits(lanes, first_key, n)
    if call('EXISTS', lanes) == 0 then return nil end
    local names = {}
    for i = 1, n do names[i] = lane_of(KEYS[first_key + i]) end
    return call('ZMSCORE', lanes, unpack(names))
end

local any_paused = nil
local function is_paused(lock)
    if any_paused == nil then any_paused = call('EXISTS', P .. 'paused') == 1 end
    return any_paused and call('SISMEMBER', P .. 'paused', lane_of(lock)) == 1
end

-- A lane stands in `lanes` just while its list exists: every script leaves it so. One that stands there without a list had its list deleted or
-- evicted by others, with the messages in it. The stream `vanished` tells their owners, who have them read from Kafka again.
local VANISHED_MAX = 10000
local function list_vanished(lane)
    pcall_('XADD', P .. 'vanished', 'MAXLEN', '~', text(VANISHED_MAX), '*', 'lane', lane)
    call('PEXPIRE', P .. 'vanished', text(100 * math.max(tonumber(epoch[3] or 0), 1000)))
end
local function forget_vanished(lane) -- told first: a lane that no longer stands in `lanes` is looked at by nobody
    list_vanished(lane)
    call('ZREM', P .. 'lanes', lane)
end

-- Waiting messages may be large, so the bytes that a call reads from lists are limited. call_left: what it may still read; lane_bytes: the
-- most that one lane is granted; `largest`: the largest envelope that the caller met recently or this call has read, which decides how many
-- are read at once. The size of an element is not known before it is read, so READ_AT_ONCE limits the cost of unexpectedly large ones.
local READ_AT_ONCE = 8
local call_left, lane_bytes, largest = 2097152, 1048576, 0
local function take_bounds(bounds)
    local lane, all, met = string.match(bounds, '^(%d+) (%d+) (%d+)$')
    lane_bytes, call_left, largest = tonumber(lane), tonumber(all), tonumber(met)
end
local function read_at_once(room)
    local n = READ_AT_ONCE
    if largest * n > room then n = math.max(1, floor(math.min(room, call_left) / largest)) end
    return n
end
local function count_read(envelope)
    call_left = call_left - #envelope
    if #envelope > largest then largest = #envelope end
end

-- Drops finished heads, then returns the next ones: a list of up to `want` {envelope, topic:partition, offset}, oldest first, of at most
-- lane_bytes or one message. If `after_tp`, `after_offset` name a message, only those behind it are returned; those before it are granted
-- already and count against lane_bytes. `before`: how many elements stand before the wanted ones, as far as known. Returns nil if none is
-- left (and the lane is removed), 'MORE' if a limit was reached first, 'BAD' if the list's name holds another type.
local trimmed = false -- the caller has just dropped heads of the lane
local function take_heads(lane, want, before, after_tp, after_offset)
    local emptied = trimmed
    trimmed = false
    if call_left <= 0 then
        if emptied and call('EXISTS', P .. 'wait:' .. lane) == 0 then
            call('ZREM', P .. 'lanes', lane)
            return nil
        end
        return 'MORE'
    end
    local wait, size, at, dropped, granted = P .. 'wait:' .. lane, before + want, 0, 0, 0 -- at: elements looked at that stay
    local out, n, any, behind, seen, full = {}, 0, false, after_tp == nil, {}, false
    repeat
        local most = read_at_once(lane_bytes - granted)
        if at + dropped == 0 then most = most + before end
        most = math.min(most, size - at - dropped)
        local list = pcall_('LRANGE', wait, -at - most, -at - 1)
        if list.err then return 'BAD' end
        local drop, read, most_bytes = 0, 0, largest
        for i = #list, 1, -1 do
            local envelope = list[i]
            local bytes = #envelope
            read = read + bytes
            if bytes > most_bytes then most_bytes = bytes end
            local tp, offset, n_dedup = identity_of(envelope)
            local over = tp and finished(tp, offset)
            local mine = any and tp and seen[tp]
            local again = mine and mine[offset] -- the same message twice: one owner put it back, the next parked it
            if tp and not over and n_dedup ~= '0' and is_duplicate(dedup_of(envelope), tp, offset) then
                set_state(tp, offset, 2)
                finish_unsaved = true
                duplicates = duplicates + 1
                over = true
            end
            if not tp and not any then -- not ours, or torn: kept where people look, out of the way
                pcall_('XADD', P .. 'dead', '*', 'envelope', envelope, 'reason', 'not an envelope of this version', 'attempts', '0')
                over = true
            end
            if over then
                if not any then drop = drop + 1 end
            elseif not tp then
                full = true
            elseif not again then
                any = true
                if not mine then
                    mine = {}
                    seen[tp] = mine
                end
                mine[offset] = true
                granted = granted + bytes
                local fits = granted <= lane_bytes
                if not behind then
                    behind = tp == after_tp and offset == after_offset
                elseif fits or (n == 0 and not after_tp) then
                    n = n + 1
                    out[n] = {envelope, tp, offset}
                    full = n == want
                else
                    full = true
                end
            end
            if full then break end
        end
        call_left, largest = call_left - read, most_bytes
        if n > 0 and #list > 0 and granted + #list[1] > lane_bytes then full = true end -- the next one would not fit either, if it is as large
        if drop > 0 then
            if finish_unsaved then save_states() end
            call('LTRIM', wait, 0, -1 - drop)
        end
        at, dropped = at + #list - drop, dropped + drop
        if not any and #list < most then
            if dropped > 0 or emptied then
                call('ZREM', P .. 'lanes', lane)
            elseif call('ZMSCORE', P .. 'lanes', lane)[1] then
                forget_vanished(lane)
            end
            return nil
        end
        if at + dropped == size and not any then size = size + 16 end
    until full or #list < most or at + dropped == size or dropped >= PRUNE_MAX or call_left <= 0
    if not any and call('EXISTS', wait) == 0 then -- a bound was reached just where the list ended
        call('ZREM', P .. 'lanes', lane)
        return nil
    end
    return any and out or 'MORE'
end

-- The first of them with its identity, or what take_heads says.
local function first_unfinished(lane)
    local heads = take_heads(lane, 1, 0)
    if type(heads) ~= 'table' then return heads end
    return heads[1][1], heads[1][2], heads[1][3]
end

-- Returns the head to run now. With retry.order skip, heads that are not due yet rotate to the left end; if none is due, returns 'UNDUE' and
-- the earliest due time. If the call reached its limit before it saw them all, the lane is examined again after LOOK_ON_MS.
local LOOK_ON_MS = 100
local function runnable_head(lane, skip)
    local head, tp, offset = first_unfinished(lane)
    if not skip or not tp then return head, tp, offset end
    local wait = P .. 'wait:' .. lane
    local earliest = nil
    for _ = 1, math.min(call('LLEN', wait), 256) do
        local _, _, due = tries_of(tp, offset)
        if due <= now then return head, tp, offset end
        earliest = math.min(earliest or due, due)
        call('RPOPLPUSH', wait, wait)
        call_left = call_left - #head
        head, tp, offset = first_unfinished(lane)
        if head == 'MORE' then return 'UNDUE', math.min(earliest, now + LOOK_ON_MS) end
        if not tp then return head end
    end
    return 'UNDUE', earliest
end

-- As take_heads; with retry.order skip, only the one head that is due.
local function runnable_heads(lane, skip, want, before, after_tp, after_offset)
    if not skip then return take_heads(lane, want, before, after_tp, after_offset) end
    local head, tp, offset = runnable_head(lane, true)
    if not tp or head == 'UNDUE' then return head, tp end
    return {{head, tp, offset}}
end

-- What gate, settle and claim grant, in order: attempts other than 0 by number of the grant, and the envelopes of heads.
local n_grants, tries_out, heads_out = 0, {}, {}
local function grant(tp, offset, s) -- s: its segment, where that is at hand
    n_grants = n_grants + 1
    s = s or segment_of(tp, offset)
    if s.has_tries == nil then s.has_tries = call('EXISTS', P .. 'tries:' .. segment_name(tp, floor(offset / SEGMENT))) == 1 end
    if not s.has_tries then return end
    local tried = tries_of(tp, offset)
    if tried > 0 then
        tries_out[#tries_out + 1] = n_grants
        tries_out[#tries_out + 1] = tried
    end
end
local function grant_heads(heads)
    for _, h in ipairs(heads) do
        grant(h[2], h[3])
        heads_out[#heads_out + 1] = h[1]
    end
    return #heads
end

local function hint(lane, look_again_ms)
    call('LPUSH', P .. 'ready', lane)
    call('ZADD', P .. 'lanes', text(look_again_ms), lane)
end
