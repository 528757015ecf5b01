-- The time as a test has set it; never part of a released script.
local now = tonumber(redis.call('GET', 'tollgate-test-clock:' .. string.match(KEYS[1], '{%d+}')))
-- Keys expire by the server's clock, which does not know of this one.
local MARGIN = 3600000
