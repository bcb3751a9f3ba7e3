-- SPDX-License-Identifier: Apache-2.0
-- What all lane scripts share; scripts/embed-lua.sh inserts it where a script names it. It reads the epoch and the time once per call.
-- KEYS[1] is always lw:{NAME.SHARD}:epoch; every other name begins with the same tag, so all live in one slot. Names of messages found
-- inside a waiting list (their state and tries) can't be declared before the list is read; they are made from that tag.
-- Redis does not roll back a script that fails in the middle. So a script writes in an order in which every prefix is a safe state, whether
-- or not the call is sent again: "A script that fails in the middle" in doc/explanation/protocol.md.
local P = string.sub(KEYS[1], 1, -6)
local floor, fmt, sub, find, byte, call, try = math.floor, string.format, string.sub, string.find, string.byte, redis.call, redis.pcall
-- Only a name of the wrong type is the caller's to answer for. Any other error ends the script: a right that the user lacks, or a disk that
-- is full, must not look like such a name, or like a message that is not there.
local function pcall_(command, ...)
    local r = try(command, ...)
    if type(r) == 'table' and r.err and not find(r.err, 'WRONGTYPE', 1, true) then error({err = r.err .. ' in ' .. command}) end
    return r
end
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
