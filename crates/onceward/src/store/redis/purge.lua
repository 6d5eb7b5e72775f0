-- Deletes one record that was not written for a minute, if its fence is the expected one: 1 deleted, 0 too recent,
-- or what is stored.
--
-- KEYS  1 record · 2 open records · 3 ended records · 4 the trail · 5 the chunks of its answer
-- ARGV  1 the expected fence · 2 the member of this record in the sets · 3 an entry for the trail
--       4 microseconds for which it must have been unchanged

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local stored = redis.call('GETRANGE', KEYS[1], 0, 66)
local fence = string.sub(stored, 3, 18)
if stored ~= '' and #fence < 16 then fence = fence .. string.rep('\0', 16 - #fence) end
if fence ~= ARGV[1] then
    return {now, redis.call('GET', KEYS[1])}
end
if #stored == 67 and now - struct.unpack('>I8', stored, 44) < tonumber(ARGV[4]) then
    return 0
end
redis.call('UNLINK', KEYS[1], KEYS[5])
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('RPUSH', KEYS[4], struct.pack('>I8', now) .. ARGV[3])
redis.call('LTRIM', KEYS[4], -1000, -1)
redis.call('PEXPIREAT', KEYS[4], string.format('%.0f', math.floor(now / 1000 + 366 * 86400000)))
return 1
