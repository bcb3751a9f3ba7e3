#!lua
-- SPDX-License-Identifier: Apache-2.0
-- hold: takes a lane for a command (such as `latchwork lock exec -c`), as gate would, but without a
-- message. The command does not wait behind the lane's messages. They keep their order and continue
-- when the command releases the lane.
-- KEYS    1 epoch, 2 fence, 3 lock
-- ARGV    1 epoch id, 2 expected Redis time (ms), 3 slack (ms), 4 ttl_ms, 5 token,
--         6 '1' if a paused lane may be taken
-- Result: 'LOST', 'JUMP', {'H', fence} if the caller now holds the lane, {'B', ms left or -1} if
--         another holder has locked the lane, {'Q', ms left} in a quarantine, {'P', 0} if the lane
--         is paused
-- @fences @locks @lanes
local id, expected, slack, ttl, token, paused_too = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5],
    ARGV[6] == '1'
local why = refuse(id, expected, slack, true)
if why == 'QUARANTINE' then return {'Q', tonumber(epoch[2]) - now} end
if why then return why end
local lock = KEYS[3]
local held = call('GET', lock)
if held and not is_mine(held, token) then return {'B', call('PTTL', lock)} end
if not held and not paused_too and is_paused(lock) then return {'P', 0} end
-- take a new fence even if the caller already has the lock, because the answer with the earlier
-- fence was lost
take_fences(1)
local fence = text(fence_base)
call('SET', lock, token .. ':' .. fence, 'PX', ttl)
return {'H', fence}
