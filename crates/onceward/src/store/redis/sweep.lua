-- Deletes records of one partition whose retention was over an hour ago, and puts those that are not over where they
-- belong. An entry of a set whose record is gone is removed. Answers how many records it deleted.
--
-- KEYS  1 open records · 2 ended records · then the records, each followed by the chunks of its answer
-- ARGV  for each record: its member in the sets, and the fence that it had when it was looked at

local HOUR, CENTURY = 3600 * 1000000, 100 * 365 * 86400 * 1000000
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local deleted = 0
for index = 1, #ARGV, 2 do
    local member, record, chunks = ARGV[index], KEYS[index + 2], KEYS[index + 3]
    local stored = redis.call('GETRANGE', record, 0, 67)
    if stored == '' then
        redis.call('ZREM', KEYS[1], member)
        redis.call('ZREM', KEYS[2], member)
    elseif #stored < 68 or string.byte(stored, 1) > 1 or string.byte(stored, 68) > 1 then
        -- Damaged, or of newer software: left alone, and looked at again later.
        for set = 1, 2 do
            redis.call('ZADD', KEYS[set], 'XX', now + HOUR, member)
        end
    elseif string.sub(stored, 3, 18) == ARGV[index + 1] then
        local state, ends = string.byte(stored, 2), struct.unpack('>I8', stored, 52)
        if state ~= 0 and ends > 0 and ends + HOUR <= now then
            redis.call('UNLINK', record, chunks)
            redis.call('ZREM', KEYS[1], member)
            redis.call('ZREM', KEYS[2], member)
            deleted = deleted + 1
        else
            local later = now + CENTURY
            if state ~= 0 and ends > 0 then later = ends + HOUR end
            redis.call('SETRANGE', record, 59, struct.pack('>I8', later))
            redis.call('ZADD', KEYS[state < 3 and 1 or 2], later, member)
        end
    end
end
return deleted
