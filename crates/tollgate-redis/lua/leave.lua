-- Removes a node that shuts down from the list of nodes and from the registry of rules.
-- KEYS: the nodes, the registry. ARGV: the node.
redis.call('ZREM', KEYS[1], ARGV[1])
local MARGIN = 60
local now = tonumber(redis.call('TIME')[1])
local is_text, text = pcall(redis.call, 'GET', KEYS[2])
if not is_text or not text then return 0 end
local is_packed, registry = pcall(cmsgpack.unpack, text)
if not is_packed or type(registry) ~= 'table' then return 0 end
if type(registry[2]) ~= 'table' or type(registry[3]) ~= 'table' then return 0 end
local others, last = {}, now
for _, it in ipairs(registry[3]) do
    if type(it) ~= 'table' or it[1] ~= ARGV[1] then others[#others + 1] = it end
end
for _, it in ipairs(registry[2]) do
    if type(it) == 'table' and type(it[3]) == 'number' and it[3] > last then last = it[3] end
end
redis.call('SET', KEYS[2], cmsgpack.pack({ registry[1], registry[2], others }), 'EX', last - now + MARGIN)
return 1
