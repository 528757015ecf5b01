-- Sliding-window counter: a count for each part and one more, the oldest weighted by how
-- much of it is still in view.
-- rule: kind, limit, period, parts.
sliding = {}

-- Which part it is now, and how far into it, in 1/parts of a tick.
local function position(rule)
    local rest = math.fmod(now, rule[3])
    local fine = rest * rule[4]
    local elapsed = math.fmod(fine, rule[3])
    return (now - rest) / rule[3] * rule[4] + (fine - elapsed) / rule[3], elapsed
end

-- Moves the counts so that the newest is the one of now. A clock that stepped back
-- counts in the newest part there is.
local function advance(k, rule)
    local part, elapsed = position(rule)
    if part < x[k] then return 0 end
    local shift = part - x[k]
    if shift > 0 then
        local counts, n = y[k], rule[4] + 1
        for i = n, 1, -1 do counts[i] = i > shift and counts[i - shift] or 0 end
        x[k] = part
    end
    return elapsed
end

-- What weighs, rounded up to whole units.
local function weight(k, rule, elapsed)
    local counts, n = y[k], rule[4] + 1
    local rest = 0
    for i = 1, n - 1 do rest = rest + counts[i] end
    local faded, more = scaled(rule[3] - elapsed, counts[n], 0, rule[3])
    return more > 0 and rest + faded + 1 or rest + faded
end

function sliding.load(k, rule, raw)
    local counts, n = {}, rule[4] + 1
    x[k], y[k] = 0, counts
    if not raw then
        for i = 1, n do counts[i] = 0 end
        return true
    end
    local newest, rest = string.match(raw, '^(%d+)([ %d]*)$')
    if not newest then return false end
    for count in string.gmatch(rest, '%d+') do counts[#counts + 1] = tonumber(count) end
    if #counts ~= n then return false end
    x[k] = tonumber(newest)
    if x[k] - position(rule) > 2 * rule[4] + 1 then
        -- The oldest has faded by the clock that was wrong, so it counts in full.
        counts[n - 1], counts[n] = counts[n - 1] + counts[n], 0
        x[k], changed[k] = position(rule), true
    end
    return true
end

function sliding.save(k, rule)
    local counts, parts, age = y[k], { string.format('%.0f', x[k]) }, nil
    for i = 1, rule[4] + 1 do
        parts[i + 1] = string.format('%.0f', counts[i])
        if counts[i] > 0 and not age then age = i - 1 end
    end
    if not age then return keep(k, '', 0) end
    -- In 1/parts of a tick from here; large numbers may lose their last digits, which
    -- the margin of every expiry covers.
    local part, elapsed = position(rule)
    local left = (x[k] + rule[4] + 1 - age - part) * rule[3] - elapsed
    keep(k, table.concat(parts, ' '), now + math.ceil(left / rule[4]))
end

function sliding.state(k, out)
    out[#out + 1] = x[k]
    for _, count in ipairs(y[k]) do out[#out + 1] = count end
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
    for i, count in ipairs(y[k]) do
        local taken = math.min(units, count)
        y[k][i], units = count - taken, units - taken
    end
    changed[k] = true
end

function sliding.refund(k, rule, units, taken_at)
    advance(k, rule)
    local rest = math.fmod(taken_at, rule[3])
    local part = (taken_at - rest) / rule[3] * rule[4] + floor(rest * rule[4] / rule[3])
    local age = math.max(x[k] - part, 0)
    if age <= rule[4] then
        y[k][age + 1], changed[k] = math.max(y[k][age + 1] - units, 0), true
    end
end

function sliding.charge(k, rule, units, overdrawn)
    local most = overdrawn and 2 * rule[2] or rule[2]
    local room = math.max(most - weight(k, rule, advance(k, rule)), 0)
    y[k][1], changed[k] = y[k][1] + math.min(units, room), true
end

function sliding.used(k, rule)
    return weight(k, rule, advance(k, rule))
end

function sliding.reset(k, rule)
    for i = 1, rule[4] + 1 do y[k][i] = 0 end
    x[k], changed[k] = 0, true
end
