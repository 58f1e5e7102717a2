-- Counts a batch of requests against token buckets and flights, all or nothing per request.
-- KEYS: the buckets. ARGV[1], msgpack: [adjustments, requests, flights].
--   adjustment: [bucket, limit, period s, units to add (negative gives back), least level]
--   request: [bucket, limit, period s, cost, bucket, ...]; period 0: requests under way at once
--   flights: [] or [gateway, gateways living, whole, presence, [[bucket, own, cap], ...]]
-- A bucket's level is what is used of its limit; it leaks at the limit per period and never passes
-- it. What is under way is kept per gateway, as each states it of itself, and counts while the
-- gateway is present. The limit is shared while all that live are; else each keeps to its own cap.
-- `whole` says that with this call all is stated: only then can a gateway become present.
-- Answer, flat: per request the place of the bucket that refused it (0: admitted), then the level of
-- each of its buckets in thousandths; at last, where flights are, 1: shared, 0: apart, -1: state all.
-- Longer than a gateway that ended stays in the list of those that live.
local PRESENT_US = 7000000
local FLIGHT_MS = 900000
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
-- `unpack` takes at most 8,000; a batch with its adjustments and flights has under 4,000.
local stored = redis.call('MGET', unpack(KEYS))
local asked = cmsgpack.unpack(ARGV[1])
local levels, rates, answer = {}, {}, {}
local me, living, whole, presence_place = unpack(asked[3])
local flights, standing = {}, -1

local function map_of(place)
    return stored[place] and cmsgpack.unpack(stored[place]) or {}
end

if me then
    local presence, present = map_of(presence_place), 0
    for gateway, until_us in pairs(presence) do
        if until_us <= now then
            presence[gateway] = nil
        elseif gateway ~= me then
            present = present + 1
        end
    end
    if presence[me] or whole == 1 then
        presence[me] = now + PRESENT_US
        standing = present + 1 >= living and 1 or 0
        redis.call('SET', KEYS[presence_place], cmsgpack.pack(presence), 'PX', PRESENT_US / 1000)
    end
    for _, stated in ipairs(asked[3][5]) do
        local counts, others = map_of(stated[1]), 0
        for gateway, count in pairs(counts) do
            if gateway ~= me and presence[gateway] then
                others = others + count
            else
                counts[gateway] = nil
            end
        end
        flights[stated[1]] = {counts = counts, others = others, own = stated[2], cap = stated[3]}
    end
end

local function level_now(bucket, limit, period_s)
    local flight = flights[bucket]
    if flight then
        return standing == 1 and flight.others + flight.own or limit - flight.cap + flight.own
    end
    if levels[bucket] then
        return levels[bucket]
    end
    local level = 0
    if stored[bucket] then
        local kept, stamp = struct.unpack('dd', stored[bucket])
        local leaked = math.max(0, now - stamp) * limit / (period_s * 1000000)
        level = math.max(0, kept - leaked)
    end
    levels[bucket] = level
    return level
end

local function set_level(bucket, limit, period_s, level)
    levels[bucket] = level
    rates[bucket] = limit / period_s
end

for _, change in ipairs(asked[1]) do
    local bucket, limit, period_s = change[1], change[2], change[3]
    local level = math.max(level_now(bucket, limit, period_s), change[5]) + change[4]
    set_level(bucket, limit, period_s, math.max(0, level))
end

for _, request in ipairs(asked[2]) do
    local refused = 0
    for place = 1, #request, 4 do
        local limit = request[place + 1]
        if level_now(request[place], limit, request[place + 2]) + request[place + 3] > limit then
            refused = (place + 3) / 4
            break
        end
    end
    answer[#answer + 1] = refused
    for place = 1, #request, 4 do
        local bucket, limit, period_s = request[place], request[place + 1], request[place + 2]
        local cost = refused == 0 and request[place + 3] or 0
        if flights[bucket] then
            flights[bucket].own = flights[bucket].own + cost
        elseif cost > 0 then
            set_level(bucket, limit, period_s, level_now(bucket, limit, period_s) + cost)
        end
        answer[#answer + 1] = math.floor(level_now(bucket, limit, period_s) * 1000 + 0.5)
    end
end

for bucket, rate in pairs(rates) do
    local level = levels[bucket]
    if level > 0 then
        -- A bucket that is empty again needs no row.
        local life_ms = math.ceil(level * 1000 / rate) + 1
        redis.call('SET', KEYS[bucket], struct.pack('dd', level, now), 'PX', life_ms)
    else
        redis.call('DEL', KEYS[bucket])
    end
end
for bucket, flight in pairs(flights) do
    flight.counts[me] = flight.own > 0 and flight.own or nil
    if next(flight.counts) then
        redis.call('SET', KEYS[bucket], cmsgpack.pack(flight.counts), 'PX', FLIGHT_MS)
    elseif stored[bucket] then
        redis.call('DEL', KEYS[bucket])
    end
end
if me then
    answer[#answer + 1] = standing
end
return answer
