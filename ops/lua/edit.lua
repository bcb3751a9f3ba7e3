#!lua
-- SPDX-License-Identifier: Apache-2.0
-- edit: replace the content of a dead letter. The edited dead letter goes to the end of the stream
-- under a new id. Its field `original` holds the envelope from before its first edit. Two other
-- fields hold the operator and the time of its last edit.
-- KEYS 1 epoch, 2 dead
-- ARGV 1 id in the stream, 2 envelope as the caller read it, 3 new envelope, 4 name of the
--      operator, 5 wall time in ms
-- Result: the new id; 0 if the dead letter was removed or changed since the caller read it
-- @epoch
local found = call('XRANGE', KEYS[2], ARGV[1], ARGV[1])
if #found == 0 then return 0 end
local fields, entry, original = found[1][2], {}, ARGV[2]
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
call('XDEL', KEYS[2], ARGV[1])
return id
