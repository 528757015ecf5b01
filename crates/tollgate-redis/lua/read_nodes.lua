-- Returns the records of nodes that have not ended, the newest first: node, age in ms, record, for each.
-- KEYS: times of records, records. ARGV: lifetime in ms, maximum number of nodes, maximum length of a record.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZREVRANGEBYSCORE', KEYS[1], now + 1000, now - ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local reply = {}
for at = 1, #found, 2 do
  local node, record = found[at], ''
  -- Before it is read: a record of any length may have been written.
  if redis.call('HSTRLEN', KEYS[2], node) <= tonumber(ARGV[3]) then
    record = redis.call('HGET', KEYS[2], node) or ''
  end
  reply[#reply + 1] = node
  reply[#reply + 1] = math.max(0, now - math.floor(found[at + 1]))
  reply[#reply + 1] = record
end
return reply
