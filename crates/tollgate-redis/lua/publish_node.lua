-- Replaces the record of a node, removes the records of nodes that have ended, and returns open questions.
-- KEYS: times of records, records, questions. ARGV: node, record, lifetime in ms, maximum number of questions.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function remove(from, to)
  local gone = redis.call('ZRANGEBYSCORE', KEYS[1], from, to, 'LIMIT', 0, 1000)
  for _, node in ipairs(gone) do
    redis.call('HDEL', KEYS[2], node)
    redis.call('ZREM', KEYS[1], node)
  end
end
remove('-inf', now - ARGV[3])
-- Written by a clock that was ahead.
remove(now + 1000, '+inf')
-- Only garbage can grow that large. Each node replaces its record within a second or two.
if redis.call('HLEN', KEYS[2]) > 10000 or redis.call('ZCARD', KEYS[1]) > 10000 then
  redis.call('DEL', KEYS[1], KEYS[2])
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[3])
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[3])
return redis.call('ZRANGEBYSCORE', KEYS[3], now, '+inf', 'LIMIT', 0, ARGV[4])
