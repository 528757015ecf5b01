-- The time, read once: all of a call is decided at one instant of the server's clock.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A key is kept so many milliseconds longer than it counts: the server's own idea of
-- "now" when it sets an expiry may lag behind TIME.
local MARGIN = 100
