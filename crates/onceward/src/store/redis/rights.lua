-- Which of the commands that the store uses this user may not run, on its keys and its channel. Changes nothing.
--
-- KEYS  1 a record · 2 a set of its partition
-- ARGV  1 the channel on which processes wake each other

local needed = {
    {'GET', KEYS[1]},
    {'SET', KEYS[1], '', 'NX', 'GET'},
    {'GETRANGE', KEYS[1], 0, 0},
    {'SETRANGE', KEYS[1], 0, ''},
    {'PEXPIRE', KEYS[1], 1},
    {'PEXPIREAT', KEYS[1], 1},
    {'PERSIST', KEYS[1]},
    {'UNLINK', KEYS[1]},
    {'HGET', KEYS[1], ''},
    {'HSET', KEYS[1], '', ''},
    {'HGETALL', KEYS[1]},
    {'RPUSH', KEYS[1], ''},
    {'LRANGE', KEYS[1], 0, 0},
    {'LTRIM', KEYS[1], 0, 0},
    {'ZADD', KEYS[2], 0, ''},
    {'ZREM', KEYS[2], ''},
    {'ZRANGE', KEYS[2], 0, 0},
    {'ZCARD', KEYS[2]},
    {'TIME'},
    {'INFO', 'memory'},
    {'PUBLISH', ARGV[1], ''},
    {'SUBSCRIBE', ARGV[1]},
}
local lacking = {}
for _, command in ipairs(needed) do
    if not redis.acl_check_cmd(unpack(command)) then lacking[#lacking + 1] = command[1] end
end
return lacking
