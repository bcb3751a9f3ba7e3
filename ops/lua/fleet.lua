-- SPDX-License-Identifier: Apache-2.0
-- fleet: write the heartbeat of one supervisor, and read the heartbeats of all supervisors of the
-- application. At most so many entries are read, each of them cut, whatever others have written.
-- KEYS 1 fleet: the supervisors' ids by the time of their last heartbeat (ms of Redis' clock). The
--      text of the heartbeat of ID is in the string fleet:ID.
-- ARGV 1 number of entries to read, 2 number of bytes to read of a text, 3 of an id,
--      4 ms after its last heartbeat at which an entry goes; one that is as long before its time
--      goes, too, because the clock was set back. 5 id of the writer ('': only read), 6 text of its
--      heartbeat ('': the writer leaves, and its entry is removed), 7 '' to read the heartbeats, or
--      ':groups' to read what groups take of the supervisors' handlers, which is in the string
--      fleet:ID:groups, 8 text of it ('': none)
-- Result: time of Redis in ms, number of entries, then for each of the newest, the oldest of them
--      first: id, time, text ('' if there is none). Ids and texts are cut.
local GROUPS_MS = 15000 -- OPS_FLEET_SILENT_MS: then nobody reads it any more
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local bytes, long, keep = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local id, text, what, groups = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if id ~= '' then
    -- A call that has deleted may write at maxmemory, too.
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - keep)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], now + keep, '+inf')
    if text ~= '' then
        redis.call('ZADD', KEYS[1], string.format('%.0f', now), id)
        redis.call('PEXPIRE', KEYS[1], keep)
        redis.call('SET', KEYS[1] .. ':' .. id, text, 'PX', keep)
        if groups ~= '' then
            redis.call('SET', KEYS[1] .. ':' .. id .. ':groups', groups, 'PX', GROUPS_MS)
        end
    else
        redis.call('ZREM', KEYS[1], id)
        redis.call('DEL', KEYS[1] .. ':' .. id, KEYS[1] .. ':' .. id .. ':groups')
    end
end
local out = {string.format('%.0f', now), redis.call('ZCARD', KEYS[1])}
local rows = redis.call('ZRANGE', KEYS[1], -ARGV[1], -1, 'WITHSCORES')
for i = 1, #rows, 2 do
    local said = ''
    if #rows[i] <= long then
        said = redis.pcall('GETRANGE', KEYS[1] .. ':' .. rows[i] .. what, 0, bytes - 1)
    end
    out[#out + 1] = string.sub(rows[i], 1, long)
    out[#out + 1] = rows[i + 1]
    out[#out + 1] = type(said) == 'string' and said or ''
end
return out
