-- SPDX-License-Identifier: Apache-2.0
-- rows_keep: extends the leases of rows if all rows have the caller's token, or only checks whether
-- all rows have that token. This script never takes a lock.
-- KEYS the rows' locks
-- ARGV 1 token, 2 ttl_ms, '0' to check only,
--      3 '1' if the value of a lock is the token alone, without a fence
-- Result: 1, or 0 if a row does not have the token; in that case nothing is changed
local token, plain = ARGV[1], ARGV[3] == '1'
for _, held in ipairs(redis.call('MGET', unpack(KEYS))) do
    if not held or not (plain and held == token
            or not plain and string.sub(held, 1, #token + 1) == token .. ':') then
        return 0
    end
end
for i = 1, ARGV[2] == '0' and 0 or #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
return 1
