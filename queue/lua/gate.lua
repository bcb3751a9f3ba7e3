#!lua
-- gate: admit a batch of new messages: run at once, or wait. A lane may have several messages in it, in order: the first decides.
-- KEYS 1 epoch, 2 lanes, 3 floor, 4 fence, then G × (state segment, tries segment), then the lock of each lane; its list is wait:<lane>
-- ARGV 1 epoch id, 2 expected Redis time ms, 3 slack ms, 4 ttl_ms, 5 'park' or 'drop', 6 token, the same for all lanes of the call, 7 '1'
--      where messages carry a dedup id, 8 how many fences a lane may need, 9 how many messages each lane has, a byte each, 128 more
--      where their envelopes are here; '' one each and no envelopes, 10 the messages' places, three bytes each (lane.lua), 11 G, then G ×
--      (topic:partition, number of its segment, first and last byte to read at once), then per message, where there are such: envelope, dedup id
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or {fence, a letter a message, tries}
--      R run: the lane is ours; the i-th message that it grants has fence + i, from 0   A run after the one before it, under the same lease
--      W waiting   D finished before   X dropped for a busy lane   U dropped as a duplicate   G not decided: ask again
--      E it has to wait: ask again with its envelope
--      B a name of this lane holds another type
--      tries: number of a grant, from 1, and its attempts so far, where there are any
-- @lane
local id, expected, slack, ttl, on_busy, token, with_dedup, reserve, counts, places, n_groups = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5],
    ARGV[6], ARGV[7] == '1', tonumber(ARGV[8]), ARGV[9], ARGV[10], tonumber(ARGV[11])
local why = refuse(id, expected, slack)
if why then return why end
local lanes, first_key = KEYS[2], 4 + 2 * n_groups
take_groups(n_groups, 5, 12)
local n_lanes = #KEYS - first_key
local waiting = who_waits(lanes, first_key, n_lanes)
local place, size, arg = bytes_of(places), counts ~= '' and bytes_of(counts) or nil, 12 + 4 * n_groups
take_fences(reserve)
local value, fence = token .. ':' .. text(fence_base), fence_base
local some_paused = call('EXISTS', P .. 'paused') == 1
local out, m = {}, 0

-- Whose is a lane that is not simply free? 'mine', 'taken', or 'bad'.
local function whose_is(key, held)
    if type(held) == 'table' then return 'bad' end
    if not is_mine(held, token) then return 'taken' end
    call('SET', key, value, 'PX', ttl) -- the same call once more, its answer was lost
    return 'mine'
end

local function park(i, key, parked)
    local envelopes = {}
    for k, p in ipairs(parked) do envelopes[k] = p[4] end
    local lane = lane_of(key)
    local pushed = pcall_('LPUSH', P .. 'wait:' .. lane, unpack(envelopes))
    local ok = type(pushed) ~= 'table'
    for _, p in ipairs(parked) do
        out[p[1]] = ok and 'W' or 'B'
        if ok then put_state(p[2], p[3], 1) end
    end
    if ok and not (waiting and waiting[i]) then call('ZADD', lanes, 'NX', text(now + math.max(call('PTTL', key), 0)), lane) end
end

for i = 1, n_lanes do
    local key = KEYS[first_key + i]
    local whose, parked, stop, count, with_envelope = nil, nil, false, size and size[i] or 1, false
    if count >= 128 then count, with_envelope = count - 128, true end
    for _ = 1, count do
        m = m + 1
        local envelope, dedup = nil, ''
        if with_envelope then envelope, arg = ARGV[arg], arg + 1 end
        if with_dedup then dedup, arg = ARGV[arg], arg + 1 end
        local s, index = groups[place[3 * m - 2]], place[3 * m - 1] * 256 + place[3 * m]
        local offset, state = s.base + index, get_state(s, index)
        if state >= 2 or offset < s.floor then
            out[m] = 'D'
        elseif stop then
            out[m] = 'G'
        elseif state == 1 and whose ~= 'mine' then
            out[m] = 'W'
            whose = 'taken' -- it waits in the list: so do those behind it
        elseif with_dedup and is_duplicate(dedup, s.tp, offset) then
            put_state(s, index, 2)
            out[m] = 'U'
        elseif whose == 'mine' then -- one that waits, too: a new owner parked it after this call was sent first
            out[m] = 'A'
            grant(s.tp, offset, s)
        else
            local paused = some_paused and is_paused(key)
            if not whose then
                local held
                if paused or (waiting and waiting[i]) then
                    held = pcall_('GET', key)
                    whose = held and whose_is(key, held) or 'taken'
                else
                    held = pcall_('SET', key, value, 'NX', 'PX', ttl, 'GET')
                    whose = held and whose_is(key, held) or 'mine'
                end
            end
            if whose == 'mine' then
                out[m] = 'R'
                grant(s.tp, offset, s)
                stop = with_dedup -- the next one may be a duplicate of this
            elseif whose == 'bad' then
                out[m] = 'B'
                stop = true
            elseif on_busy == 'drop' and not paused then
                put_state(s, index, 2)
                out[m] = 'X'
            elseif not envelope then
                out[m], stop = 'E', true
            else
                parked = parked or {}
                parked[#parked + 1] = {m, s, index, envelope}
            end
        end
    end
    if parked then park(i, key, parked) end
end
save_states()
return {text(fence), table.concat(out), tries_out}
