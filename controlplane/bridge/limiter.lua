-- Counts a batch of requests against token buckets, all or nothing per request.
-- KEYS: the buckets. ARGV[1], msgpack: [adjustments, requests].
--   adjustment: [bucket, limit per minute, units to add (negative gives back), least level]
--   request: [bucket, limit, cost, bucket, limit, cost, ...]
-- A bucket's level is what is used of its limit; it leaks at the limit per minute and never passes
-- it. Answer, flat: per request the place of the bucket that refused it (0: admitted), then the
-- level of each of its buckets in thousandths.
local MINUTE_US = 60000000
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local stored = redis.call('MGET', unpack(KEYS))
local asked = cmsgpack.unpack(ARGV[1])
local levels, limits, answer = {}, {}, {}

local function level_now(bucket, limit)
    if levels[bucket] then
        return levels[bucket]
    end
    local level = 0
    if stored[bucket] then
        local kept, stamp = struct.unpack('dd', stored[bucket])
        level = math.max(0, kept - math.max(0, now - stamp) * limit / MINUTE_US)
    end
    levels[bucket] = level
    return level
end

local function set_level(bucket, limit, level)
    levels[bucket] = level
    limits[bucket] = limit
end

for _, change in ipairs(asked[1]) do
    local bucket, limit = change[1], change[2]
    local level = math.max(level_now(bucket, limit), change[4]) + change[3]
    set_level(bucket, limit, math.max(0, level))
end

for _, request in ipairs(asked[2]) do
    local refused = 0
    for place = 1, #request, 3 do
        local limit = request[place + 1]
        if level_now(request[place], limit) + request[place + 2] > limit then
            refused = (place + 2) / 3
            break
        end
    end
    answer[#answer + 1] = refused
    for place = 1, #request, 3 do
        local bucket, limit = request[place], request[place + 1]
        local level = level_now(bucket, limit)
        if refused == 0 then
            level = level + request[place + 2]
            set_level(bucket, limit, level)
        end
        answer[#answer + 1] = math.floor(level * 1000 + 0.5)
    end
end

for bucket, limit in pairs(limits) do
    local level = levels[bucket]
    if level > 0 then
        -- A bucket that is empty again needs no row.
        local life_ms = math.ceil(level * 60000 / limit) + 1
        redis.call('SET', KEYS[bucket], struct.pack('dd', level, now), 'PX', life_ms)
    else
        redis.call('DEL', KEYS[bucket])
    end
end
return answer
