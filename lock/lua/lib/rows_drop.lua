-- SPDX-License-Identifier: Apache-2.0
-- rows_drop: releases those of the given rows that have the caller's token
-- KEYS for each row: lock, zset of waiting clients
-- ARGV 1 token, 2 '1' if the value of a lock is the token alone, without a fence
-- Result: number of rows that were released
local token, plain, n, waiting = ARGV[1], ARGV[2] == '1', 0, {}
for i = 1, #KEYS, 2 do
    local held = redis.call('GET', KEYS[i])
    if held and (plain and held == token
            or not plain and string.sub(held, 1, #token + 1) == token .. ':') then
        redis.call('DEL', KEYS[i])
        n = n + 1
        local first = redis.call('ZPOPMIN', KEYS[i + 1])
        if first[1] then waiting[#waiting + 1] = {first[1], KEYS[i + 1]} end
    end
end
if waiting[1] then
-- @fences
-- @waiting
    for _, w in ipairs(waiting) do
        if not tell(w[1], w[2]) then wake(w[2]) end
    end
end
return n
