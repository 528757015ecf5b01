-- Removes a node that shuts down from the list of nodes and from the registry of rules.
-- KEYS: the nodes, the registry. ARGV: the node.
redis.call('ZREM', KEYS[1], ARGV[1])
local text, milliseconds = redis.pcall('GET', KEYS[2]), redis.call('PTTL', KEYS[2])
if type(text) ~= 'string' or milliseconds < 1 then return 0 end
local is_packed, registry = pcall(cmsgpack.unpack, text)
if not is_packed or type(registry) ~= 'table' then return 0 end
if type(registry[2]) ~= 'table' or type(registry[3]) ~= 'table' then return 0 end
local others = {}
for _, it in ipairs(registry[3]) do
    if type(it) ~= 'table' or it[1] ~= ARGV[1] then others[#others + 1] = it end
end
redis.call('SET', KEYS[2], cmsgpack.pack({ registry[1], registry[2], others }), 'PX', milliseconds)
return 1
