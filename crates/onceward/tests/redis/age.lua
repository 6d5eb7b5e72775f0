-- Moves all stored times of a record back, as if it were so much older: for tests.
local stored = redis.call('GETRANGE', KEYS[1], 0, 66)
if #stored < 67 then return 0 end
local by, times = tonumber(ARGV[2]), {struct.unpack('>I8I8I8I8', stored, 36)}
for place = 1, 4 do
    if times[place] > 0 then times[place] = math.max(1, times[place] - by) end
end
redis.call('SETRANGE', KEYS[1], 35, struct.pack('>I8I8I8I8', times[1], times[2], times[3], times[4]))
local set = string.byte(stored, 2) < 3 and 2 or 3
redis.call('ZADD', KEYS[set], 'XX', times[4], ARGV[1])
return 1
