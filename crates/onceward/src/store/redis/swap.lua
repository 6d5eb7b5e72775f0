-- Replaces a record if its fence is the expected one; otherwise answers what is stored.
--
-- Two scripts are made of this file: one with the flag `allow-oom`, which ends and renews claims also when the
-- server has no memory left, and one without it for claims. Everything is in one slot.
--
-- KEYS  1 record · 2 open records · 3 ended records, both by the time at which one may be swept
--       then, each where its flag says so: the trail · the chunks of the new answer · those of the old one
-- ARGV  1 the expected fence; empty: nothing may be stored
--       2 the member of this record in the sets
--       3 the head of the value: version, state, flags, fence, execution
--       4 microseconds of the first claim; empty: now
--       5 microseconds of the lease or of the retention; empty: without end
--       6 microseconds for which the end of a new claim will be remembered; empty: this is no new claim
--       7 the body
--       8 an entry for the trail; empty: none
--       9 flags: 1 chunks of the new answer, 2 chunks of the old one, 4 a mark to wait for (the last key)
--
-- The value is the head (35 bytes), then four times as big-endian microseconds (first claim, last write, end or 0,
-- sweep), then the body: see rows.rs.

local HOUR, CENTURY = 3600 * 1000000, 100 * 365 * 86400 * 1000000
local IN_PROGRESS, SUCCEEDED, FAILED_FINAL = 0, 3, 4

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local expected, member, head = ARGV[1], ARGV[2], ARGV[3]
local state, ttl, retain = string.byte(head, 2), tonumber(ARGV[5]), tonumber(ARGV[6])
local flags = tonumber(ARGV[9])
if flags >= 4 then
    -- A conflict tells what others wrote: a caller that waits for replicas waits for that too.
    redis.call('SET', KEYS[#KEYS], now)
    flags = flags - 4
end

local is_open, ends = state < SUCCEEDED, 0
if ttl then ends = now + ttl end

local stored, stored_state = '', nil
if expected ~= '' then
    stored = redis.call('GETRANGE', KEYS[1], 0, 66)
    local fence = string.sub(stored, 3, 18)
    if stored ~= '' and #fence < 16 then fence = fence .. string.rep('\0', 16 - #fence) end
    if fence ~= expected then
        return {now, redis.call('GET', KEYS[1])}
    end
    stored_state = string.byte(stored, 2)
end

-- When it may be swept, which is also its place in lists.
local sweep
local keeps = #stored == 67 and string.byte(stored, 2) == IN_PROGRESS
if state == IN_PROGRESS and not retain and keeps then
    sweep = struct.unpack('>I8', stored, 60)
elseif retain then
    sweep = now + retain + HOUR
elseif not ttl then
    sweep = now + CENTURY
else
    sweep = ends + HOUR
    -- It keeps its place, so that its end moves nothing in a list; a sweep that comes too early moves it.
    if keeps and (state == SUCCEEDED or state == FAILED_FINAL) then
        sweep = math.min(sweep, struct.unpack('>I8', stored, 60))
    end
end

local started = tonumber(ARGV[4]) or now
local value = head .. struct.pack('>I8I8I8I8', started, now, ends, sweep) .. ARGV[7]
-- The net below the sweep: never below a claim in progress, and an hour later than a sweep would be.
local net = nil
if state ~= IN_PROGRESS and ttl then
    net = string.format('%.0f', math.floor((ends + 2 * HOUR) / 1000))
end
if expected == '' then
    local found = redis.call('SET', KEYS[1], value, 'NX', 'GET')
    if found then return {now, found} end
    if net then redis.call('PEXPIREAT', KEYS[1], net) end
elseif net then
    redis.call('SET', KEYS[1], value, 'PXAT', net)
else
    redis.call('SET', KEYS[1], value)
end

local was_open = stored_state and stored_state < SUCCEEDED
local set, other = KEYS[2], KEYS[3]
if not is_open then set, other = other, set end
if stored_state and was_open ~= is_open then redis.call('ZREM', other, member) end
if not (keeps and was_open == is_open and sweep == struct.unpack('>I8', stored, 60)) then
    redis.call('ZADD', set, sweep, member)
end

local key = 4
if ARGV[8] ~= '' then
    redis.call('RPUSH', KEYS[key], struct.pack('>I8', now) .. ARGV[8])
    redis.call('LTRIM', KEYS[key], -1000, -1)
    redis.call('PEXPIREAT', KEYS[key], string.format('%.0f', math.floor(now / 1000 + 366 * 86400000)))
    key = key + 1
end
if flags % 2 == 1 then
    if net then redis.call('PEXPIREAT', KEYS[key], net) else redis.call('PERSIST', KEYS[key]) end
    key = key + 1
end
if flags >= 2 then redis.call('UNLINK', KEYS[key]) end
return now
