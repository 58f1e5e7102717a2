-- A table of size classes that answered prompts: each slot holds the digest that is good for
-- longest, so that retries of a minute do not displace ratings of an hour.
-- KEYS: the slots. ARGV[1], msgpack: [notes, lookups].
--   note: [place of its slot, digest in hex, number of the class (0: forget), ms to remember]
--   lookup: [place of its slot, digest]
-- Answer: the number of the class of each lookup, 0 where none is known.
local asked = cmsgpack.unpack(ARGV[1])
for _, note in ipairs(asked[1]) do
    local slot = KEYS[note[1]]
    local held = redis.call('GET', slot)
    local own = held and string.sub(held, 1, #note[2]) == note[2]
    if note[3] > 0 then
        if own or redis.call('PTTL', slot) <= note[4] then
            redis.call('SET', slot, note[2] .. note[3], 'PX', note[4])
        end
    elseif own then
        redis.call('DEL', slot)
    end
end
local answer = {}
for number, lookup in ipairs(asked[2]) do
    local known = redis.call('GET', KEYS[lookup[1]])
    local same = known and string.sub(known, 1, #lookup[2]) == lookup[2]
    answer[number] = same and tonumber(string.sub(known, #lookup[2] + 1)) or 0
end
return answer
