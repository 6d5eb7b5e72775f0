-- Writes one chunk of a large answer. It goes after an hour, unless the record of its fence comes.
--
-- KEYS  1 the chunks of the answer · 2 the record
-- ARGV  1 the index of the chunk · 2 its bytes · 3 the fence

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if redis.call('GETRANGE', KEYS[2], 2, 17) ~= ARGV[3] then
    redis.call('PEXPIRE', KEYS[1], 3600000)
end
return 1
