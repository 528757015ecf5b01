-- The time, read once: all of a call is decided at one instant of the server's clock.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
