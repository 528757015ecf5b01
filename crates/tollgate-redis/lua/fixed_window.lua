-- Fixed window: its end, and the units spent in it.
-- rule: kind, limit, longest window, alignment (0: since 1970, 1: from the first request, 2: by a
-- calendar), the maximum count of refusals (the limit, or more for a tally); for a calendar also
-- start, end and the next end.
fixed = {}

local function closes(rule)
    if rule[4] == 0 then return now - math.fmod(now, rule[3]) + rule[3] end
    if rule[4] == 1 then return now + rule[3] end
    return now < rule[7] and rule[7] or rule[8]
end

local function opened(rule, ends)
    if rule[4] == 2 then
        if ends == rule[7] then return rule[6] end
        if ends == rule[8] then return rule[7] end
    end
    return ends - rule[3]
end

-- A window without spent units is not open.
local function open(k, rule)
    if y[k] == 0 or now >= x[k] then x[k], y[k] = closes(rule), 0 end
end

function fixed.load(k, rule, raw)
    if raw then
        local ends, count = string.match(raw, '^(%d+) (%d+)$')
        if not ends then return false end
        x[k], y[k] = tonumber(ends), tonumber(count)
    else
        x[k], y[k] = 0, 0
    end
    if y[k] > 0 and x[k] - now > 2 * rule[3] then x[k], changed[k] = closes(rule), true end
    return true
end

function fixed.save(k)
    keep(k, string.format('%.0f %.0f', x[k], y[k]), y[k] > 0 and x[k] or 0)
end

fixed.state = tell_pair

function fixed.left(k, rule)
    if y[k] > 0 and now < x[k] then return math.max(rule[2] - y[k], 0) end
    return rule[2]
end

-- Whether a check that only peeks passes: a tally above its limit refuses it too.
function fixed.passes(k, rule)
    return rule[5] == rule[2] or now >= x[k] or y[k] <= rule[2]
end

function fixed.spend(k, rule, cost)
    open(k, rule)
    if y[k] + cost > rule[2] then return false end
    y[k], changed[k] = y[k] + cost, true
    return true
end

function fixed.give(k, rule, units)
    open(k, rule)
    if y[k] == 0 then return end
    y[k], changed[k] = math.max(y[k] - units, 0), true
    if y[k] == 0 then x[k] = 0 end
end

function fixed.refund(k, rule, units, taken_at)
    open(k, rule)
    if taken_at >= opened(rule, x[k]) then fixed.give(k, rule, units) end
end

-- A tally leases nothing.
function fixed.leasable(k, rule)
    return rule[5] == rule[2] and fixed.left(k, rule) or 0
end

fixed.lease = fixed.spend

function fixed.return_lease(k, rule, units, taken_at)
    if rule[5] == rule[2] then fixed.refund(k, rule, units, taken_at) end
end

function fixed.charge(k, rule, units, overdrawn)
    open(k, rule)
    local most = overdrawn and math.max(2 * rule[2], rule[5]) or rule[5]
    if overdrawn == 'all' then most = 562949953421312 end
    local after = math.min(y[k] + units, math.max(most, y[k]))
    if after > 0 then y[k], changed[k] = after, true end
end

function fixed.used(k)
    return now < x[k] and y[k] or 0
end

-- Carries over the count. A window that starts at the first request keeps its start if it is then
-- still open. Other windows close no later than before, unless the new windows are longer.
function fixed.carry(k, rule, past, old)
    local kept = rule[4] == 1 and old[4] == 1 and opened(old, x[past]) + rule[3] or 0
    if kept <= now then
        kept = closes(rule)
        if rule[3] <= old[3] then kept = math.min(math.ceil(x[past] / 1000000) * 1000000, kept) end
    end
    x[k], y[k], changed[k] = kept, y[past], true
    return true
end

fixed.reset = clear_pair
