-- Registers a version of the rules and the node that uses it, and returns what other nodes use.
--
-- KEYS: the registry, the rules of the version.
-- ARGV: the node, the version, how many seconds its usage counts, its rules ('' if they were sent
-- before), the version that is in force on the node, the newest revision that the node knows ('' for a node
-- that joins: it reads all versions before it serves).
--
-- The registry is one MessagePack array:
--   the newest revision;
--   versions: { version, revision, expiry in seconds };
--   nodes: { node, expiry in seconds, the version in force, the newest revision that it knows }.
-- A version is kept while a node uses it and for as long as its usage counts after that. A value that
-- Tollgate did not write is replaced.
--
-- Reply: 0 if the rules have to be sent, and nothing was done. Else 1, the newest revision, the versions
-- (version, revision, seconds to its expiry) and the other nodes (version in force, newest revision).
local MAX_VERSIONS, MAX_NODES, NODE_SECONDS, MARGIN = 32, 10000, 10, 60
local now = tonumber(redis.call('TIME')[1])
local node, version, seconds, rules = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local in_force, known = ARGV[5], tonumber(ARGV[6])

if rules == '' and redis.call('EXISTS', KEYS[2]) == 0 then return { 0 } end

-- Returns the entries of a list whose fields have these types.
local function valid(list, types)
    local kept = {}
    if type(list) ~= 'table' then return kept end
    for _, entry in ipairs(list) do
        local is_valid = type(entry) == 'table' and #entry == #types
        for i = 1, #types do is_valid = is_valid and type(entry[i]) == types[i] end
        if is_valid then kept[#kept + 1] = entry end
    end
    return kept
end

local revision, versions, nodes = 0, {}, {}
local is_text, text = pcall(redis.call, 'GET', KEYS[1])
if is_text and text then
    local is_packed, registry = pcall(cmsgpack.unpack, text)
    if is_packed and type(registry) == 'table' and type(registry[1]) == 'number' then
        revision = registry[1]
        versions = valid(registry[2], { 'string', 'number', 'number' })
        nodes = valid(registry[3], { 'string', 'number', 'string', 'number' })
    end
end

local used, others = { [in_force] = true }, {}
for _, it in ipairs(nodes) do
    -- A later expiry was written by a clock that was ahead.
    if it[1] ~= node and it[2] > now and it[2] <= now + NODE_SECONDS and #others < MAX_NODES then
        others[#others + 1], used[it[3]] = it, true
    end
end

local kept, mine, last = {}, nil, now
for _, it in ipairs(versions) do
    if it[1] == version then
        mine = it
    elseif used[it[1]] or it[3] > now then
        kept[#kept + 1] = it
    end
end
-- The registry was lost since: the node does not know what others have registered after that.
if known and known > revision then known = 0 end
if not mine then
    revision = revision + 1
    mine = { version, revision, 0 }
end
mine[3] = math.max(mine[3], now + seconds)
if #kept >= MAX_VERSIONS then
    -- The versions that are in use are kept, then those that count for longest.
    table.sort(kept, function(a, b)
        if (used[a[1]] or false) ~= (used[b[1]] or false) then return used[a[1]] or false end
        return a[3] > b[3]
    end)
    for i = #kept, MAX_VERSIONS, -1 do kept[i] = nil end
end
kept[#kept + 1] = mine
for _, it in ipairs(kept) do
    if it[3] > last then last = it[3] end
end

-- The version that a node still uses has to be readable as long as it is listed: each node renews its own.
if rules ~= '' then
    redis.call('SET', KEYS[2], rules, 'EX', seconds + MARGIN)
else
    redis.call('EXPIRE', KEYS[2], mine[3] - now + MARGIN)
end
others[#others + 1] = { node, now + NODE_SECONDS, in_force, known or revision }
redis.call('SET', KEYS[1], cmsgpack.pack({ revision, kept, others }), 'EX', last - now + MARGIN)

others[#others] = nil
local versions_out, nodes_out = {}, {}
for _, it in ipairs(kept) do
    versions_out[#versions_out + 1], versions_out[#versions_out + 2], versions_out[#versions_out + 3] =
        it[1], it[2], math.max(it[3] - now, 0)
end
for _, it in ipairs(others) do
    nodes_out[#nodes_out + 1], nodes_out[#nodes_out + 2] = it[3], it[4]
end
return { 1, revision, versions_out, nodes_out }
