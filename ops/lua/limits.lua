#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- limits: change a limit in force, put back what the file says, or pause or resume what it is for.
-- KEYS 1 epoch, 2 limits (queue/lua/limit.lua), both of shard 0
-- ARGV 1 'set', 'reset', 'pause' or 'resume', 2 '' for the fleet, ':GROUP' for a group, or 'each'
--      for each group without limits of its own ('set' and 'reset' only), 3 running, 4 per_second,
--      5 burst ('': as it is, 0: no limit), 6 maximum number of fields of `limits`
-- Result: {word, limit, file}. word: 'OK'; 'SAME': nothing was to be changed; 'NONE': no worker has
--      said yet what its file limits; 'BURST': a burst without per_second; 'FULL': there are too
--      many fields. limit: "RUNNING PER_SECOND BURST" in force now. file: what the file said last,
--      or '-'
-- @epoch
local limits, what, of = KEYS[2], ARGV[1], ARGV[2]
local version = call('HGET', limits, 'version')
if not version then return {'NONE', '', '-'} end
local own = of == '' and 'fleet' or of == 'each' and of or 'group' .. of
local old = call('HGET', limits, own)
local limit, file = string.match(old or '', '^(%d+ %d+ %d+) (.+)$')
local each = own ~= 'fleet' and string.match(call('HGET', limits, 'each') or '', '^%d+ %d+ %d+')
limit, file = limit or each or '0 0 0', file or '-'

local field, value
if what == 'set' then
    local running, rate, burst = string.match(limit, '^(%d+) (%d+) (%d+)$')
    if ARGV[3] ~= '' then running = ARGV[3] end
    if ARGV[4] ~= '' then rate = ARGV[4] end
    if ARGV[5] ~= '' then burst = ARGV[5] end
    if rate == '0' and ARGV[5] ~= '' then return {'BURST', limit, file} end
    if rate == '0' then burst = '0' end
    limit = running .. ' ' .. rate .. ' ' .. burst
    field, value = own, limit .. ' ' .. file
    if old == value then return {'SAME', limit, file} end
elseif what == 'reset' then
    if not old or limit == file then return {'SAME', limit, file} end
    limit, field = file == '-' and each or file, own
    value = file ~= '-' and limit .. ' ' .. file
else
    field, value = 'paused' .. of, text(now)
    if (call('HGET', limits, field) ~= false) == (what == 'pause') then
        return {'SAME', limit, file}
    end
end
if not value or what == 'resume' then
    call('HDEL', limits, field)
else
    if not call('HGET', limits, field) and #call('HKEYS', limits) >= tonumber(ARGV[6]) then
        return {'FULL', limit, file}
    end
    call('HSET', limits, field, value)
end
call('HSET', limits, 'version', text(math.max(tonumber(version) + 1, now)))
return {'OK', limit, file}
