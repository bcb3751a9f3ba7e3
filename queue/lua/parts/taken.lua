-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- A dead letter in a topic stays there when it is replayed or edited. The zset `taken` has the
-- identity of each such dead letter, by the time (ms) at which it was taken, so that no
-- operator takes it again without asking for that. A dead letter that is in the
-- topic twice has one identity.
local TAKEN_KEEP_MS, TAKEN_MAX, TRIM_MAX = 90 * 86400000, 1000000, 100
local function in_topic(entry) return find(entry, '/', 1, true) end
local function is_taken(letter) return call('ZSCORE', P .. 'taken', letter) end
local function take(letter)
    local taken = P .. 'taken'
    call('ZADD', taken, text(now), letter)
    local n = math.max(call('ZCOUNT', taken, '-inf', text(now - TAKEN_KEEP_MS)),
        call('ZCARD', taken) - TAKEN_MAX)
    if n > 0 then call('ZREMRANGEBYRANK', taken, 0, text(math.min(n, TRIM_MAX) - 1)) end
end
