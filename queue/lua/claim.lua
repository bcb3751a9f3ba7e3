#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
-- claim: takes a batch of lanes that hints name as runnable, and hands over their heads. The heads
-- stay in their waiting lists until they are settled.
-- KEYS    1 epoch, 2 lanes, 3 floor, 4 fence, 5 ready, 6 claimed:<worker>,
--         then the lock of each lane (whose waiting list is wait:<lane>)
-- ARGV    1 epoch id, 2 expected Redis time (ms), 3 slack (ms), 4 ttl_ms, 5 handoff_ms,
--         6 retry.order, 7 number of hints to remove from `claimed`,
--         8 token, the same for all lanes of the call, 9 number of fences that one lane may need,
--         10 maximum number of heads per lane,
--         11 three numbers of bytes, "LANE CALL MET" (parts/heads.lua). LANE is the maximum size
--         of the messages granted per lane, except that one message is granted whatever its size.
--         When the call has read CALL bytes from waiting lists, it reads no further element. MET is
--         the size of the largest envelope that the caller has seen recently.
-- Result: 'LOST', 'JUMP', 'QUARANTINE', or {fence, one letter per lane (LW_CLAIMED in
--         queue/codes.h), number of duplicates dropped, tries, heads, one byte per lane: number of
--         its heads that are handed over}
--         fence: the i-th head of a lane has fence + i, counted from 0
--         tries: as in gate
-- If the call reaches a limit (parts/heads.lua) before it finds a head of a lane, that lane gets
-- another hint.
-- @fences @locks @heads @grants @hints
local id, expected, slack, ttl, handoff, skip, taken, token, reserve, want = ARGV[1], ARGV[2],
    ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6] == 'skip', tonumber(ARGV[7]), ARGV[8],
    tonumber(ARGV[9]), tonumber(ARGV[10])
local why = refuse(id, expected, slack)
if why then return why end
take_bounds(ARGV[11])
local lanes, first_key = KEYS[2], 6
if taken > 0 then
    call('LTRIM', KEYS[6], 0, -1 - taken)
    call('PEXPIRE', KEYS[6], text(4 * tonumber(ttl)))
end
local out, heads_each = {}, {}
for i = 1, #KEYS - first_key do
    local lock = KEYS[first_key + i]
    local lane, held = lane_of(lock), pcall_('GET', lock)
    local answer, given, broken = 'LW_CLAIMED_BUSY', 0, type(held) == 'table'
    local mine = not broken and is_mine(held, token)
    if not broken and (not held or mine) and not is_paused(lock) then
        local heads, due = runnable_heads(lane, skip, want, 0)
        if heads == nil or heads == 'BAD' or heads == 'MORE' then
            if mine then call('DEL', lock) end
            if heads == 'MORE' then hint(lane, now + handoff) end
            if heads == nil then answer = 'LW_CLAIMED_EMPTY' end
        elseif heads == 'UNDUE' then
            set_undue(lock, math.max(due - now, 1))
            call('ZADD', lanes, text(due), lane)
        else
            take_fences(reserve)
            local head = token .. ':' .. text(fence_base)
            if mine then
                call('SET', lock, head, 'PX', ttl)
            else
                call('SET', lock, head, 'NX', 'PX', ttl)
            end
            call('ZADD', lanes, text(now + tonumber(ttl)), lane)
            given, answer = grant_heads(heads), 'LW_CLAIMED_HEADS'
        end
    end
    out[i] = answer
    heads_each[i] = given
end
save_states()
return {fence_base and text(fence_base) or '0', table.concat(out), duplicates, tries_out, heads_out,
    string.char(unpack(heads_each))}
