-- SPDX-License-Identifier: Apache-2.0
-- @epoch
-- Reads envelopes, whose form is described in queue/envelope.h.
local function identity_of(envelope)
    local topic, partition, offset, replay, n_dedup =
        string.match(envelope, '^1 (%S+) (%d+) (%d+) (%d+) %-?%d+ %-?%d+ %-?%d+ (%d+) ')
    if not topic then return nil end
    if replay ~= '0' then partition = partition .. '#' .. replay end
    return topic .. ':' .. partition, tonumber(offset), n_dedup
end
local function dedup_of(envelope)
    local head, size = string.match(envelope, '^([^\n]*)\n'), nil
    if not head then return '' end
    size = tonumber(string.match(head, '^%d+ %S+ %d+ %d+ %d+ %-?%d+ %-?%d+ %-?%d+ (%d+) ') or 0)
    return sub(envelope, #head + 2, #head + 1 + size)
end

-- Returns true if another message has recorded this business id.
local duplicates = 0
local function is_duplicate(dedup, tp, offset)
    if dedup == '' then return false end
    local by = pcall_('GET', P .. 'dedup:' .. dedup)
    return type(by) == 'string' and by ~= tp .. ':' .. text(offset)
end
