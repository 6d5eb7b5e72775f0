-- Moves all stored times of all records with a prefix back, as if they were so much older: for tests.
--
-- ARGV  1 the prefix · 2 by how many microseconds
local by, count = tonumber(ARGV[2]), 0
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':{??}:r*')) do
    local start, member = string.sub(key, 1, #ARGV[1] + 6), string.sub(key, #ARGV[1] + 8)
    local stored = redis.call('GETRANGE', key, 0, 66)
    local times = {struct.unpack('>I8I8I8I8', stored, 36)}
    for place = 1, 4 do
        if times[place] > 0 then times[place] = math.max(1, times[place] - by) end
    end
    redis.call('SETRANGE', key, 35, struct.pack('>I8I8I8I8', times[1], times[2], times[3], times[4]))
    for _, set in ipairs({'o', 'e'}) do
        redis.call('ZADD', start .. set, 'XX', times[4], member)
    end
    count = count + 1
end
return count
