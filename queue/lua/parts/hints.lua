-- SPDX-License-Identifier: Apache-2.0
-- @epoch
local function hint(lane, look_again_ms)
    call('LPUSH', P .. 'ready', lane)
    call('ZADD', P .. 'lanes', text(look_again_ms), lane)
end
