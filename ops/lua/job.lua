#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- job: begin, renew and end a job, so that an application runs one bulk command at a time. A job
-- has a number, which is the replay number of the messages that it puts back.
-- KEYS 1 epoch, 2 job (the running job: a string "NUMBER TOKEN" with a TTL),
--      3 replays (the last number that was used), 4 job:NUMBER, the record of this job (job:0 if a
--      new job begins), 5 audit
-- ARGV 1 'begin', 'renew' or 'end', 2 token, 3 ttl_ms
--      begin: 4 lowest number to use, 5 number of the job to continue ('' for a new job),
--      6.. name, value… to write to the record
--      renew, end: 4 number of this job, 5.. name, value… to write to the record
-- Result of begin: the number of the job, {'BUSY', number of the running job}, or {'NONE'} if there
--      is no job to continue
-- Result of renew and end: 1, or 0 if another job has begun. A job that did not renew within ttl_ms
--      may still continue as long as no other job has begun.
-- @changes
local what, token, ttl = ARGV[1], ARGV[2], ARGV[3]
-- The record expires before the marks of the messages that the job put. If the job could be
-- continued without these marks, the job would put every message again.
local KEEP_S, AUDIT_MAX = REPLAY_MARK_S - 86400, 10000
local function record(job, from)
    for i = from, #ARGV, 2 do call('HSET', job, ARGV[i], ARGV[i + 1]) end
    -- the TTL of the record is set only once, so it counts from the beginning of the job
    if call('TTL', job) < 0 then call('EXPIRE', job, KEEP_S) end
end
local function audit(event, number, from)
    local entry = {'event', event, 'job', number}
    for i = from, #ARGV do entry[#entry + 1] = ARGV[i] end
    call('XADD', KEYS[5], 'MAXLEN', '~', text(AUDIT_MAX), '*', unpack(entry))
end
local running = call('GET', KEYS[2])
if what ~= 'begin' then
    local mine = ARGV[4] .. ' ' .. token
    if running and running ~= mine then return 0 end
    record(KEYS[4], 5)
    if what == 'end' then
        call('DEL', KEYS[2])
        audit('end', ARGV[4], 5)
    else
        call('SET', KEYS[2], mine, 'PX', ttl)
    end
    return 1
end
if running and string.match(running, ' (.*)$') ~= token then
    -- if Redis' clock went back, the lease of the running job would end too late, so the lease is
    -- shortened
    if call('PTTL', KEYS[2]) > tonumber(ttl) then call('PEXPIRE', KEYS[2], ttl) end
    return {'BUSY', string.match(running, '^%d+')}
end
local number = ARGV[5]
if number ~= '' then
    if call('EXISTS', KEYS[4]) == 0 then return {'NONE'} end
elseif running then
    -- the caller has not received the answer to its first call, and repeats the call
    number = string.match(running, '^%d+')
else
    number = text(math.max(tonumber(call('GET', KEYS[3]) or 0) + 1, tonumber(ARGV[4])))
    call('SET', KEYS[3], number)
end
call('SET', KEYS[2], number .. ' ' .. token, 'PX', ttl)
record(P .. 'job:' .. number, 6)
audit('begin', number, 6)
return number
