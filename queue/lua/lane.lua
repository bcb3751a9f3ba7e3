-- What the lane scripts share; tools/embed-lua.sh puts it where a script says so. Reads the epoch and the time once a call.
-- KEYS[1] is always lw:{NAME.SHARD}:epoch; every other name begins with the same tag, so all live in one slot. Names of messages found
-- inside a waiting list (their state and tries) can't be declared before the list is read; they are made from that tag.
local P = string.sub(KEYS[1], 1, -6)
local floor, fmt, sub, find, call, pcall_ = math.floor, string.format, string.sub, string.find, redis.call, redis.pcall
local SEGMENT = 16384
local PRUNE_MAX = 4096
local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = floor(now_us / 1000)
local epoch = call('HMGET', KEYS[1], 'id', 'not_before')

-- LOST: another epoch. JUMP: Redis time is not what the caller expects. QUARANTINE: leases of an earlier epoch may still be live.
local function refuse(id, expected_ms, slack_ms)
    if epoch[1] ~= id then return 'LOST' end
    if expected_ms ~= '' and math.abs(now - tonumber(expected_ms)) > tonumber(slack_ms) then return 'JUMP' end
    if epoch[2] and now < tonumber(epoch[2]) then return 'QUARANTINE' end
    return nil
end

local function text(n) return fmt('%.0f', n) end

-- Fences grow across expiry, release and a wiped Redis: max(last + 1, time in microseconds). Read once, written once a call.
local fence_base, fence_given = nil, 0
local function next_fence()
    if not fence_base then fence_base = math.max(tonumber(call('GET', P .. 'fence') or 0) + 1, now_us) end
    fence_given = fence_given + 1
    return text(fence_base + fence_given - 1)
end
local function save_fence()
    if fence_given > 0 then call('SET', P .. 'fence', text(fence_base + fence_given - 1)) end
end

-- A lock's value is TOKEN:FENCE.
local function is_mine(value, token)
    return value and find(value, token, 1, true) == 1 and string.byte(value, #token + 1) == 58
end

-- States, two bits an offset. Writes are collected and seen by later reads of this call.
local floors, written, pending_bits = {}, {}, {}
local function floor_of(tp)
    local f = floors[tp]
    if not f then
        f = tonumber(call('HGET', P .. 'floor', tp) or 0)
        floors[tp] = f
    end
    return f
end
local function segment_name(tp, offset) return tp .. ':' .. text(floor(offset / SEGMENT)) end
local function bits(byte, index) return floor(byte / 4 ^ (3 - index % 4)) % 4 end
local function state_of(tp, offset)
    local w = written[tp .. ':' .. text(offset)]
    if w then return w end
    local index = offset % SEGMENT
    local at = floor(index / 4)
    local b = call('GETRANGE', P .. 'state:' .. segment_name(tp, offset), at, at)
    if b == '' then return 0 end
    return bits(string.byte(b), index)
end
local function finished(tp, offset) return offset < floor_of(tp) or state_of(tp, offset) >= 2 end
local function set_state(tp, offset, state) -- never below the floor, never down
    if offset < floor_of(tp) then return end
    local was = state_of(tp, offset)
    if was >= 2 or was == state then return end
    written[tp .. ':' .. text(offset)] = state
    local s = segment_name(tp, offset)
    local ops = pending_bits[s]
    if not ops then
        ops = {}
        pending_bits[s] = ops
    end
    local n = #ops
    ops[n + 1] = 'SET'
    ops[n + 2] = 'u2'
    ops[n + 3] = '#' .. offset % SEGMENT
    ops[n + 4] = state
end
local function save_states()
    for s, ops in pairs(pending_bits) do
        for i = 1, #ops, 2000 do call('BITFIELD', P .. 'state:' .. s, unpack(ops, i, math.min(i + 1999, #ops))) end
    end
end

-- Raises a floor, never lowers it, and deletes the segments that it passed. from: below it nothing was ever written, where no floor is known.
local function raise_floor(tp, committed, from)
    local known = call('HGET', P .. 'floor', tp)
    local was = tonumber(known or from)
    if known and committed <= was then return end
    call('HSET', P .. 'floor', tp, text(committed))
    floors[tp] = committed
    local first, last = floor(was / SEGMENT), floor(committed / SEGMENT) - 1
    for segment = math.max(first, last - 4095), last do
        local s = tp .. ':' .. text(segment)
        call('DEL', P .. 'state:' .. s, P .. 'tries:' .. s)
    end
end

-- tries: attempts so far and, for dead letters and due times, "ATTEMPTS FIRST_MS DUE_MS" a message, a hash a segment.
local function tries_of(tp, offset)
    local v = call('HGET', P .. 'tries:' .. segment_name(tp, offset), text(offset))
    if not v then return 0, 0, 0 end
    local n, first, due = string.match(v, '^(%d+) (%d+) (%d+)$')
    return tonumber(n or 0), tonumber(first or 0), tonumber(due or 0)
end
local function set_tries(tp, offset, n, first, due)
    call('HSET', P .. 'tries:' .. segment_name(tp, offset), text(offset), fmt('%.0f %.0f %.0f', n, first, due))
end
local function forget_tries(tp, offset) call('HDEL', P .. 'tries:' .. segment_name(tp, offset), text(offset)) end

-- Envelopes: see queue/envelope.h.
local function identity_of(envelope)
    local topic, partition, offset = string.match(envelope, '^1 (%S+) (%d+) (%d+) ')
    if not topic then return nil end
    return topic .. ':' .. partition, tonumber(offset)
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

-- Drops finished heads. Returns the head with its identity; nil, and the lane is no more, where none is left; 'MORE' where the bound was
-- reached first; 'BAD' where the list's name holds another type.
local function first_unfinished(lane)
    local wait = P .. 'wait:' .. lane
    for _ = 1, PRUNE_MAX do
        local head = pcall_('LINDEX', wait, -1)
        if type(head) == 'table' then return 'BAD' end
        if not head then
            call('ZREM', P .. 'lanes', lane)
            return nil
        end
        local tp, offset = identity_of(head)
        if not tp then -- not ours, or torn: kept where people look, out of the way
            pcall_('XADD', P .. 'dead', '*', 'envelope', head, 'reason', 'not an envelope of this version', 'attempts', '0')
        elseif not finished(tp, offset) then
            if not is_duplicate(dedup_of(head), tp, offset) then return head, tp, offset end
            set_state(tp, offset, 2)
            duplicates = duplicates + 1
        end
        call('RPOP', wait)
    end
    return 'MORE'
end

-- The head to run now. With retry.order skip, heads that are not due yet rotate to the left end; all undue: returns 'UNDUE' and when.
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
        head, tp, offset = first_unfinished(lane)
        if not tp then return head end
    end
    return 'UNDUE', earliest
end

local function hint(lane, look_again_ms)
    call('LPUSH', P .. 'ready', lane)
    call('ZADD', P .. 'lanes', text(look_again_ms), lane)
end
