-- SPDX-License-Identifier: Apache-2.0
-- This part is the code that all lane scripts share. scripts/embed-lua.sh inserts it into each
-- script that names it. The part reads the epoch and the time once per call. KEYS[1] is always
-- lw:{NAME.SHARD}:epoch. All other names begin with the same prefix, so that all keys are in one
-- slot. A script cannot declare the keys of the states and tries of messages in a waiting list,
-- because these keys are known only after the list was read; the script makes their names from the
-- prefix. Redis does not roll back a script that fails in the middle. Therefore a script orders its
-- writes so that the state is safe after each of them, whether or not the call is sent again (see
-- "A script that fails in the middle" in doc/explanation/protocol.md).
local P = string.sub(KEYS[1], 1, -6)
local floor, fmt, sub, find, byte, call, try = math.floor, string.format, string.sub, string.find,
    string.byte, redis.call, redis.pcall
-- Calls a Redis command. Returns the error only if the key has another type, which the callers
-- handle. Any other error ends the script, because a missing right or a full disk must not look
-- like a key of another type or a missing message.
local function pcall_(command, ...)
    local r = try(command, ...)
    if type(r) == 'table' and r.err and not find(r.err, 'WRONGTYPE', 1, true) then
        error({err = r.err .. ' in ' .. command})
    end
    return r
end
local KEYS, ARGV = KEYS, ARGV
-- The name of a lane is the name of its lock without this prefix.
local LOCK_PREFIX = #P + 6
-- true if lanes of the shard are paused; nil while the call has not looked
local any_paused = nil
local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = floor(now_us / 1000)
local epoch = call('HMGET', KEYS[1], 'id', 'not_before', 'ttl_ms', 'first', 'groups')

-- Returns the reason why the call must not act, or nil if it may act. LOST: the shard is in another
-- epoch. JUMP: the clock of Redis is not where the caller expects it. QUARANTINE: leases of an
-- earlier epoch may still be live. Calls of workers also get QUARANTINE while the epoch has the
-- field `first`: the group may have no commit yet, and handlers get no messages until it has one
-- (lift.lua).
local function refuse(id, expected_ms, slack_ms, is_command)
    if epoch[1] ~= id then return 'LOST' end
    if expected_ms ~= '' and math.abs(now - tonumber(expected_ms)) > tonumber(slack_ms) then
        return 'JUMP'
    end
    if epoch[2] and now < tonumber(epoch[2]) or epoch[4] and not is_command then
        return 'QUARANTINE'
    end
    return nil
end

local function text(n) return fmt('%.0f', n) end
