-- SPDX-License-Identifier: Apache-2.0
-- rights: find out which commands the calling user may run, without running the commands.
-- ARGV for each command: the number of its words, then the words
-- Result: one byte per command: '1' allowed, '0' refused, '?' unknown to this server
local out, i = {}, 1
while i <= #ARGV do
    local n = tonumber(ARGV[i])
    local ok, may = pcall(redis.acl_check_cmd, unpack(ARGV, i + 1, i + n))
    out[#out + 1] = not ok and '?' or may and '1' or '0'
    i = i + n + 1
end
return table.concat(out)
