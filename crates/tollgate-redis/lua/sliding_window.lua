-- Sliding-window counter: two counts, the older weighted by the fraction of its window that is
-- still in view.
-- rule: kind, limit, period.
sliding = {}

-- Returns the number of the current window, and the time elapsed in it.
local function position(rule)
    local elapsed = math.fmod(now, rule[3])
    return (now - elapsed) / rule[3], elapsed
end

-- Shifts the counts so that the first is the count of the current window. If the clock stepped
-- back, the newest window stays current.
local function advance(k, rule)
    local window, elapsed = position(rule)
    if window < x[k] then return 0 end
    local counts = y[k]
    if window > x[k] then
        counts[2] = window - x[k] == 1 and counts[1] or 0
        counts[1], x[k] = 0, window
    end
    return elapsed
end

-- Returns the weighted count, rounded up to whole units.
local function weight(k, rule, elapsed)
    local faded, more = scaled(rule[3] - elapsed, y[k][2], 0, rule[3])
    return y[k][1] + faded + (more > 0 and 1 or 0)
end

function sliding.load(k, rule, raw)
    x[k], y[k] = 0, { 0, 0 }
    if not raw then return true end
    local newest, current, previous = string.match(raw, '^(%d+) (%d+) (%d+)$')
    if not newest then return false end
    x[k], y[k] = tonumber(newest), { tonumber(current), tonumber(previous) }
    if x[k] - position(rule) > 3 then
        -- The previous count decayed by a wrong clock, so it counts in full.
        y[k] = { y[k][1] + y[k][2], 0 }
        x[k], changed[k] = position(rule), true
    end
    return true
end

function sliding.save(k, rule)
    local current, previous = y[k][1], y[k][2]
    if current + previous == 0 then return keep(k, '', 0) end
    local text = string.format('%.0f %.0f %.0f', x[k], current, previous)
    keep(k, text, (x[k] + (current > 0 and 2 or 1)) * rule[3])
end

function sliding.state(k, out)
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = x[k], y[k][1], y[k][2]
end

function sliding.left(k, rule)
    return math.max(rule[2] - weight(k, rule, advance(k, rule)), 0)
end

function sliding.spend(k, rule, cost)
    if weight(k, rule, advance(k, rule)) + cost > rule[2] then return false end
    y[k][1], changed[k] = y[k][1] + cost, true
    return true
end

function sliding.give(k, rule, units)
    advance(k, rule)
    for i = 1, 2 do
        local taken = math.min(units, y[k][i])
        y[k][i], units = y[k][i] - taken, units - taken
    end
    changed[k] = true
end

function sliding.refund(k, rule, units, taken_at)
    advance(k, rule)
    local age = math.max(x[k] - floor(taken_at / rule[3]), 0)
    if age <= 1 then
        y[k][age + 1], changed[k] = math.max(y[k][age + 1] - units, 0), true
    end
end

sliding.leasable, sliding.lease, sliding.return_lease = sliding.left, sliding.spend, sliding.refund

function sliding.charge(k, rule, units, overdrawn)
    local most = overdrawn and 2 * rule[2] or rule[2]
    if overdrawn == 'all' then most = 2147483648 end
    local room = math.max(most - weight(k, rule, advance(k, rule)), 0)
    y[k][1], changed[k] = y[k][1] + math.min(units, room), true
end

function sliding.used(k, rule)
    return weight(k, rule, advance(k, rule))
end

function sliding.reset(k)
    x[k], y[k], changed[k] = 0, { 0, 0 }, true
end
