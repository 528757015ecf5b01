-- The time that a test has set; never part of a released script.
local now = tonumber(redis.call('GET', 'tollgate-test-clock:' .. string.match(KEYS[1], '{%d+}')))
-- Keys expire by the server's clock, which differs from the test clock.
local MARGIN = 3600000
