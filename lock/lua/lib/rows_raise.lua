-- SPDX-License-Identifier: Apache-2.0
-- rows_raise: gives the rows of one lock the same fence and a full TTL, after the rows were taken
-- in several calls
-- KEYS for each row: lock, fence counter
-- ARGV 1 token, 2 ttl_ms, 3 new fence, not smaller than the fence of any row,
--      4 lifetime of the fence counters in ms,
--      5 '1' if the value of a lock is the token alone, without a fence
-- Result: 1, or 0 if a row does not have the caller's token; in that case nothing is changed
-- @fences
local token, ttl, fence, keep_ms, plain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
for i = 1, #KEYS, 2 do
    local held = call('GET', KEYS[i])
    if not (held and (plain and held == token
            or not plain and sub(held, 1, #token + 1) == token .. ':')) then
        return 0
    end
end
for i = 1, #KEYS, 2 do
    call('SET', KEYS[i], plain and token or token .. ':' .. fence, 'PX', ttl)
    save_fence(KEYS[i + 1], fence, keep_ms)
end
return 1
