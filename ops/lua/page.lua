#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
-- page: read some elements of a lane's list, oldest first.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 waiting list
-- ARGV 1 number of elements to skip, from the oldest, 2 maximum number of elements
-- Result: only -1 if the Redis key of the waiting list is not a list; otherwise the number of
--      elements in the list, then four values per element that was read:
--      1 'w' waiting, 'f' finished (to be removed), or '?' not an envelope of this version
--      2 number of attempts so far
--      3 time when the message is due, in ms
--      4 the envelope
-- If elements are large, the answer has fewer than requested, but at least two if there are two.
-- The caller must call again for the other elements.
-- @heads
local BYTES_MAX = 1048576
local skip, most, wait = tonumber(ARGV[1]), tonumber(ARGV[2]), KEYS[4]
local n = pcall_('LLEN', wait)
if type(n) == 'table' then return {-1} end
local out, at = {n}, skip
local stop = math.min(skip + most, n)
local function tell(envelope)
    local tp, offset = identity_of(envelope)
    local letter, tried, due, _ = '?', 0, 0, nil
    if tp then
        letter = finished(tp, offset) and 'f' or 'w'
        tried, _, due = tries_of(tp, offset)
    end
    out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = letter, text(tried), text(due),
        envelope
end
call_left = BYTES_MAX
while at < stop and (call_left > 0 or at < skip + 2) do
    local some = math.min(at == skip and 2 or read_at_once(math.max(call_left, 1)), stop - at)
    local list = call('LRANGE', wait, -at - some, -at - 1)
    for i = #list, 1, -1 do
        count_read(list[i])
        tell(list[i])
    end
    at = at + some
end
return out
