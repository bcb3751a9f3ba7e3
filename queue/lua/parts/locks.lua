-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- The value of a lock that has a holder is TOKEN:FENCE.
local function is_mine(value, token)
    return value and find(value, token, 1, true) == 1 and string.byte(value, #token + 1) == 58
end

-- lock_left() returns the remaining time of a lock in ms, like PTTL, and shortens that time in
-- Redis if it is too long. A lock is set for at most the largest TTL in use, or for MS if its value
-- is "backoff:MS". A longer remaining time means that the lock was set before Redis' clock went
-- back and would end too late. Then lock_left() sets the remaining time to that maximum. The value
-- "backoff" without MS comes from an older version and does not contain its length, so lock_left()
-- does not change such a lock.
local function is_backoff(value)
    return value == 'backoff' or find(value, '^backoff:%d+$') ~= nil
end
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
local function set_backoff(lock, wait_ms)
    call('SET', lock, 'backoff:' .. text(wait_ms), 'PX', text(wait_ms))
end
-- With retry.order skip: none of the messages that wait is due before wait_ms have passed. A zero
-- before MS tells this from the backoff of the lane itself: a new message need not wait for it.
local function set_undue(lock, wait_ms)
    call('SET', lock, 'backoff:0' .. text(wait_ms), 'PX', text(wait_ms))
end
local function is_undue(value)
    return type(value) == 'string' and find(value, '^backoff:0') ~= nil
end
