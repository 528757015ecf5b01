-- Returns the records of nodes that have not ended, the newest first: node, age in ms, record, for each.
-- KEYS: times of records, the start of the names of records, which are in the same partition. ARGV: lifetime in ms,
-- maximum number of nodes, maximum length of a record.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZREVRANGEBYSCORE', KEYS[1], now + 1000, now - ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local reply = {}
for at = 1, #found, 2 do
  -- Any value may have been written: of another type, or of any length.
  local record = redis.pcall('GET', KEYS[2] .. found[at])
  if type(record) ~= 'string' or #record > tonumber(ARGV[3]) then
    record = ''
  end
  reply[#reply + 1] = string.sub(found[at], 1, 17)
  reply[#reply + 1] = math.max(0, now - math.floor(found[at + 1]))
  reply[#reply + 1] = record
end
return reply
