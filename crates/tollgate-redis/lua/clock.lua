-- The time is read once: a whole call is decided at one instant of the server's clock.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- The number of milliseconds that a key is kept longer than it counts: the clock that the server
-- uses for expiry may lag behind TIME.
local MARGIN = 100
