#!lua flags=allow-oom
-- floor: commits that Kafka accepted. Raises floors, never lowers one, and deletes the segments that they passed.
-- KEYS 1 epoch, 2 floor
-- ARGV 1 epoch id, then (topic:partition, committed, from)…; from: below it nothing was ever written, where no floor is known
-- Result: 'OK' or 'LOST'
-- @lane
if refuse(ARGV[1], '', 0) == 'LOST' then return 'LOST' end
for at = 2, #ARGV, 3 do
    local tp, committed = ARGV[at], tonumber(ARGV[at + 1])
    local was = tonumber(call('HGET', KEYS[2], tp) or ARGV[at + 2])
    if committed > was or not call('HGET', KEYS[2], tp) then
        call('HSET', KEYS[2], tp, text(committed))
        local first, last = floor(was / SEGMENT), floor(committed / SEGMENT) - 1
        for segment = math.max(first, last - 4095), last do
            local s = tp .. ':' .. text(segment)
            call('DEL', P .. 'state:' .. s, P .. 'tries:' .. s)
        end
    end
end
return 'OK'
