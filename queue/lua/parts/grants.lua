-- SPDX-License-Identifier: Apache-2.0
-- @tries
-- gate, settle and claim collect their grants in these variables, in order. tries_out has
-- three numbers for each granted message that failed before: its place among the granted messages,
-- its number of attempts, and the time of its first failure. heads_out has the envelopes of heads.
local n_grants, tries_out, heads_out = 0, {}, {}
-- s is the message's segment; if s is nil, the function finds the segment itself
local function grant(tp, offset, s)
    n_grants = n_grants + 1
    s = s or segment_of(tp, offset)
    if s.has_tries == nil then
        s.has_tries =
            call('EXISTS', P .. 'tries:' .. segment_name(tp, floor(offset / LW_SEGMENT))) == 1
    end
    if not s.has_tries then return end
    local tried, first = tries_of(tp, offset)
    if first > 0 then
        tries_out[#tries_out + 1] = n_grants
        tries_out[#tries_out + 1] = tried
        tries_out[#tries_out + 1] = first
    end
end
local function grant_heads(heads)
    for _, h in ipairs(heads) do
        grant(h[2], h[3])
        heads_out[#heads_out + 1] = h[1]
    end
    return #heads
end
