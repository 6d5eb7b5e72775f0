-- Writes the names of a route, if what is stored for it is still what was read: 1, otherwise 0.
--
-- KEYS  1 the routes
-- ARGV  1 the template · 2 what was read; empty: nothing · 3 what is written

local stored = redis.call('HGET', KEYS[1], ARGV[1])
if (stored or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
