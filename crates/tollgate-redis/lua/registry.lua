-- Registers a version of the rules and the node that uses it, and returns what other nodes use.
--
-- KEYS: the registry, the rules of the version.
-- ARGV: the node, the version, how many seconds its usage counts, its rules ('' if they were sent
-- before), the version that is in force on the node, the newest revision that the node knows ('' for a node
-- that joins: it reads all versions before it serves), the length of the rules, the maximum number of
-- versions, the seconds for which a registration counts, the maximum seconds for which usage counts.
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
local MAX_NODES, MAX_BYTES, MARGIN = 10000, 2097152, 60
local now = tonumber(redis.call('TIME')[1])
local node, version, seconds, rules = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local in_force, known = ARGV[5], tonumber(ARGV[6])
local MAX_VERSIONS, NODE_SECONDS, MAX_SECONDS = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

-- Rules of another length are not those of this version. Any value may have been written, of any type.
if rules == '' and redis.pcall('STRLEN', KEYS[2]) ~= tonumber(ARGV[7]) then return { 0 } end

-- Returns whether a value is a whole number that a double holds exactly.
local function is_whole(value)
    return type(value) == 'number' and value >= 0 and value < 9007199254740992 and value == math.floor(value)
end

-- Returns whether a value is a version or a node: sixteen hexadecimal digits.
local function is_id(value) return type(value) == 'string' and #value == 16 and not value:find('[^0-9a-f]') end

-- Returns the entries of a list whose fields pass these tests, without those that have the id of another.
local function valid(list, tests)
    local kept, seen = {}, {}
    if type(list) ~= 'table' then return kept end
    for _, entry in ipairs(list) do
        local is_valid = type(entry) == 'table' and #entry == #tests
        for i = 1, #tests do is_valid = is_valid and tests[i](entry[i]) end
        if is_valid and not seen[entry[1]] then
            kept[#kept + 1], seen[entry[1]] = entry, true
        end
    end
    return kept
end

local revision, versions, nodes = 0, {}, {}
local length = redis.pcall('STRLEN', KEYS[1])
if type(length) == 'number' and length > 0 and length <= MAX_BYTES then
    local is_packed, registry = pcall(cmsgpack.unpack, redis.call('GET', KEYS[1]))
    if is_packed and type(registry) == 'table' and is_whole(registry[1]) then
        local function is_revision(value) return is_whole(value) and value <= registry[1] end
        revision = registry[1]
        versions = valid(registry[2], { is_id, is_revision, is_whole })
        nodes = valid(registry[3], { is_id, is_whole, is_id, is_revision })
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
    -- A later expiry was written by a clock that was ahead.
    it[3] = math.min(it[3], now + MAX_SECONDS)
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
