#!lua
-- SPDX-License-Identifier: Apache-2.0
-- edit: replace the content of a dead letter. The edited dead letter goes to the end of the stream
-- under a new id. Its field `original` holds the envelope from before its first edit. Two other
-- fields hold the operator and the time of its last edit. A dead letter in a topic stays there, but
-- counts as taken.
-- KEYS 1 epoch, 2 dead
-- ARGV 1 id in the stream, or the identity of a dead letter in a topic, 2 envelope as the caller
--      read it, 3 new envelope, 4 name of the operator, 5 wall time in ms
--      of a dead letter in a topic: 6 'any' if it may have been taken before, otherwise '', 7.. the
--      names and values of its other fields
-- Result: the new id; 0 if the dead letter was removed or changed since the caller read it; 1 if it
--      was taken from its topic before
-- @taken
local fields, entry, original = {}, {}, ARGV[2]
if in_topic(ARGV[1]) then
    if ARGV[6] ~= 'any' and is_taken(ARGV[1]) then return 1 end
    for i = 7, #ARGV do fields[i - 6] = ARGV[i] end
else
    local found = call('XRANGE', KEYS[2], ARGV[1], ARGV[1])
    if #found == 0 then return 0 end
    fields = found[1][2]
end
for i = 1, #fields, 2 do
    if fields[i] == 'envelope' and fields[i + 1] ~= ARGV[2] then return 0 end
    if fields[i] == 'original' then original = fields[i + 1] end
    if fields[i] ~= 'envelope' and fields[i] ~= 'original' and fields[i] ~= 'edited_by'
            and fields[i] ~= 'edited_ms' then
        entry[#entry + 1] = fields[i]
        entry[#entry + 1] = fields[i + 1]
    end
end
local id =
    call('XADD', KEYS[2], '*', 'envelope', ARGV[3], 'original', original, 'edited_by', ARGV[4],
    'edited_ms', ARGV[5], unpack(entry))
if in_topic(ARGV[1]) then take(ARGV[1]) else call('XDEL', KEYS[2], ARGV[1]) end
return id
