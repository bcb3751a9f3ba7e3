#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- break: ends the lock of a lane for an operator, no matter who holds it, or ends the lane's
-- backoff. The fence rises. If messages wait in the lane and it is not paused, the lane gets a
-- hint.
-- KEYS    1 epoch, 2 lanes, 3 fence, 4 ready, 5 audit, 6 lock
-- ARGV    1 handoff_ms, 2 name of the operator
-- Result: {fence, value that the lock had}, or {} if the lock did not exist
-- @fences @lanes @hints
local AUDIT_MAX = 10000
local lanes, audit, lock = KEYS[2], KEYS[5], KEYS[6]
local was = call('GET', lock)
if not was then return {} end
take_fences(1)
local fence, lane = text(fence_base), lane_of(lock)
call('DEL', lock)
if call('ZSCORE', lanes, lane) and not is_paused(lock) then hint(lane, now + tonumber(ARGV[1])) end
pcall_('XADD', audit, 'MAXLEN', '~', AUDIT_MAX, '*', 'did', 'lock break', 'key', lane, 'by',
    ARGV[2], 'was', was, 'fence', fence)
return {fence, was}
