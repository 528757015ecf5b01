-- Registers a node for ten seconds and returns the number of registered nodes.
local time = redis.call('TIME')
local now = tonumber(time[1])
redis.call('ZADD', KEYS[1], now + 10, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
-- Removes entries that were written by a clock that was ahead.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 11, '+inf')
redis.call('EXPIRE', KEYS[1], 20)
return redis.call('ZCARD', KEYS[1])
