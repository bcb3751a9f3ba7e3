-- SPDX-License-Identifier: Apache-2.0
-- rows_take: takes rows in the given order, up to the first row that another client holds, and
-- gives all taken rows one fence
-- KEYS for each row: lock, fence counter
-- ARGV 1 token, 2 ttl_ms, 3 largest fence that the caller has seen,
--      4 lifetime of the fence counters in ms,
--      5 '1' if the value of a lock is the token alone, without a fence,
--      6 TTL in ms that a lock without TTL gets, '0': none
-- Result: {fence as a string, number of rows that the caller has now, LEFT}. LEFT is the ms until
--      the lock of the next row expires, -1 if that lock has no TTL, 0 if the caller has all rows
-- @fences
local token, ttl, seen, keep_ms, plain, give = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1',
    ARGV[6]
local most = tonumber(seen)
for i = 2, #KEYS, 2 do most = math.max(most, tonumber(call('GET', KEYS[i])) or 0) end
local fence = text(math.max(most + 1, now_us()))
local value = plain and token or token .. ':' .. fence
for i = 1, #KEYS, 2 do
    if not call('SET', KEYS[i], value, 'NX', 'PX', ttl) then
        local held = call('GET', KEYS[i])
        if not (plain and held == token
                or not plain and sub(held, 1, #token + 1) == token .. ':') then
            local left = call('PTTL', KEYS[i])
            if left == -1 and give ~= '0' then call('PEXPIRE', KEYS[i], give) end
            return {fence, (i - 1) / 2, left}
        end
        -- the caller already holds the row: this call was sent again because its answer was lost
        call('SET', KEYS[i], value, 'PX', ttl)
    end
    save_fence(KEYS[i + 1], fence, keep_ms)
end
return {fence, #KEYS / 2, 0}
