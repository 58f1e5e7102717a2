-- A table of size classes that answered prompts: each slot holds the newest of its digests.
-- KEYS: the slots. ARGV[1], msgpack: [notes, lookups].
--   note: [place of its slot, digest in hex, number of the class (0: forget), ms to remember]
--   lookup: [place of its slot, digest]
-- Answer: the number of the class of each lookup, 0 where none is known.
local asked = cmsgpack.unpack(ARGV[1])
for _, note in ipairs(asked[1]) do
    if note[3] > 0 then
        redis.call('SET', KEYS[note[1]], note[2] .. note[3], 'PX', note[4])
    else
        redis.call('DEL', KEYS[note[1]])
    end
end
local answer = {}
for number, lookup in ipairs(asked[2]) do
    local known = redis.call('GET', KEYS[lookup[1]])
    local same = known and string.sub(known, 1, #lookup[2]) == lookup[2]
    answer[number] = same and tonumber(string.sub(known, #lookup[2] + 1)) or 0
end
return answer
