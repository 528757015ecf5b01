-- Replaces the record of a node, forgets nodes that have ended, and returns open questions.
-- KEYS: times of records, the record of the node, questions. ARGV: node, record, lifetime in ms, maximum number
-- of questions.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
-- Written by a clock that was ahead.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 1000, '+inf')
-- Only garbage can grow that large.
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -10000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return redis.call('ZRANGEBYSCORE', KEYS[3], now, '+inf', 'LIMIT', 0, ARGV[4])
