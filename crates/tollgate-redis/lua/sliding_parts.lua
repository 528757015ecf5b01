-- Sliding window in parts: the times of the first and the last unit of each part, and the count of
-- units. Times are in steps back from the newest unit, whose time is exact to the microsecond; the
-- rule has the step.
-- rule: kind, limit, period, parts, step, strict (1: all units of a part count at the time of its
-- last unit).
--
-- Offsets are below 2^16 and counts below 2^32, so every product is below 2^50 and exact.
-- The table of a state is never changed after it is created: undoing a request restores the old
-- table.
parts = {}

-- Returns the current time as the key sees it, and how many steps before the newest unit a unit has
-- expired. If the clock stepped back, the time stays at the newest unit. The newest unit expires to
-- the microsecond, the other units to the step.
local function view(k, rule)
    local instant = math.max(now, x[k])
    local border = instant - rule[3]
    if border >= x[k] then return instant, 0 end
    return instant, math.ceil(x[k] / rule[5]) - floor(border / rule[5])
end

-- Returns how many units of a part have expired.
local function gone(first, last, count, reach)
    if last >= reach then return count end
    if first < reach then return 0 end
    return floor((count - 1) * (first - reach) / (first - last)) + 1
end

-- Returns the parts without expired units, and the number of their units.
local function in_view(k, rule)
    local instant, reach = view(k, rule)
    local old, new, weight = y[k], {}, 0
    for i = 1, #old, 3 do
        local first, last, count = old[i], old[i + 1], old[i + 2]
        if rule[6] == 1 then first = last end
        local left = gone(first, last, count, reach)
        if left < count then
            if left > 0 then
                first = first - math.ceil(left * (first - last) / (count - 1))
                count = count - left
            end
            local n = #new
            new[n + 1], new[n + 2], new[n + 3] = first, last, count
            weight = weight + count
        end
    end
    return new, weight, instant, reach
end

-- Merges the two neighbors that are closest; if strict, those whose merge delays the fewest units
-- for the shortest time.
local function merge(all, strict)
    local best, at
    for i = 1, #all - 5, 3 do
        local distance = (all[i + 1] - all[i + 3]) * (all[i + 2] + (strict and 0 or all[i + 5]))
        if not best or distance < best then best, at = distance, i end
    end
    all[at + 1], all[at + 2] = all[at + 4], all[at + 2] + all[at + 5]
    if strict then all[at] = all[at + 1] end
    for _ = 1, 3 do table.remove(all, at + 3) end
end

-- Appends units after the parts in view.
local function append(k, rule, all, units, instant)
    -- A state that was carried over may have more parts than this rule.
    while #all / 3 > rule[4] do merge(all) end
    local n, later = #all, math.ceil(instant / rule[5]) - math.ceil(x[k] / rule[5])
    if n > 0 and later == 0 then
        all[n] = all[n] + units
    else
        for i = 1, n, 3 do all[i], all[i + 1] = all[i] + later, all[i + 1] + later end
        all[n + 1], all[n + 2], all[n + 3] = 0, 0, units
        if n / 3 >= rule[4] then merge(all, rule[6] == 1) end
    end
    x[k], y[k], changed[k] = instant, all, true
end

-- Removes up to `units` units from a part.
local function reduce(all, at, units)
    local taken = math.min(units, all[at + 2])
    local left = all[at + 2] - taken
    if left == 0 then
        for _ = 1, 3 do table.remove(all, at) end
    else
        all[at + 2] = left
        -- It is unknown which unit is left, so it stays as long as the last one would.
        if left == 1 then all[at] = all[at + 1] end
    end
    return taken
end

-- Recomputes the steps relative to the newest remaining unit. If that unit changed, its time is
-- known only to the step.
local function rebase(k, rule, all)
    local n = #all
    if n == 0 then
        x[k] = 0
    elseif all[n - 1] > 0 then
        local by = all[n - 1]
        for i = 1, n, 3 do all[i], all[i + 1] = all[i] - by, all[i + 1] - by end
        x[k] = (math.ceil(x[k] / rule[5]) - by) * rule[5]
    end
    y[k], changed[k] = all, true
end

-- Eight bytes for each part, oldest first, then the time of the newest unit, whose highest byte is
-- zero: it cannot be confused with the mark of a state that was carried over.
function parts.load(k, rule, raw)
    local all = {}
    x[k], y[k] = 0, all
    if not raw then return true end
    local n = #raw / 8 - 1
    if n < 1 or n > 64 or n % 1 > 0 then return false end
    local before = 65536
    for i = 0, n - 1 do
        local first, last, count = struct.unpack('<I2I2I4', raw, 8 * i + 1)
        if first >= before or last > first or count == 0 or (count == 1 and first ~= last) then
            return false
        end
        all[3 * i + 1], all[3 * i + 2], all[3 * i + 3] = first, last, count
        before = last
    end
    local low, high = struct.unpack('<I4I4', raw, 8 * n + 1)
    if before ~= 0 or high >= 2097152 then return false end
    x[k] = high * 4294967296 + low
    local ahead = x[k] - now
    if ahead > 2 * rule[3] then x[k], changed[k] = x[k] - floor(ahead / rule[5]) * rule[5], true end
    return true
end

function parts.save(k, rule)
    local all, out = y[k], {}
    if #all == 0 then return keep(k, '', 0) end
    for i = 1, #all, 3 do out[#out + 1] = struct.pack('<I2I2I4', all[i], all[i + 1], all[i + 2]) end
    local low = x[k] % 4294967296
    out[#out + 1] = struct.pack('<I4I4', low, (x[k] - low) / 4294967296)
    keep(k, table.concat(out), x[k] + rule[3])
end

function parts.state(k, out)
    local n = #out
    out[n + 1], out[n + 2] = x[k], #y[k] / 3
    for i, number in ipairs(y[k]) do out[n + 2 + i] = number end
end

function parts.left(k, rule)
    local _, weight = in_view(k, rule)
    return math.max(rule[2] - weight, 0)
end

function parts.spend(k, rule, cost)
    local all, weight, instant = in_view(k, rule)
    if weight + cost > rule[2] then return false end
    append(k, rule, all, cost, instant)
    return true
end

function parts.give(k, rule, units)
    local all = in_view(k, rule)
    for at = #all - 2, 1, -3 do units = units - reduce(all, at, units) end
    rebase(k, rule, all)
end

function parts.refund(k, rule, units, taken_at)
    local all, _, _, reach = in_view(k, rule)
    local age = math.ceil(x[k] / rule[5]) - math.ceil(taken_at / rule[5])
    if age >= 0 and age < reach then
        for at = 1, #all, 3 do
            if all[at + 1] <= age then
                reduce(all, at, units)
                break
            end
        end
    end
    rebase(k, rule, all)
end

function parts.charge(k, rule, units, overdrawn)
    local all, weight, instant = in_view(k, rule)
    local most = overdrawn and 2 * rule[2] or rule[2]
    if overdrawn == 'all' then most = 2147483648 end
    local more = math.min(units, math.max(most - weight, 0))
    if more > 0 then append(k, rule, all, more, instant) else rebase(k, rule, all) end
end

function parts.used(k, rule)
    local _, weight = in_view(k, rule)
    return weight
end

-- Steps of equal length are compatible, whatever the number of parts.
function parts.carry(k, rule, past, old)
    if rule[3] ~= old[3] then return false end
    x[k], y[k], changed[k] = x[past], y[past], true
    return true
end

function parts.reset(k)
    x[k], y[k], changed[k] = 0, {}, true
end
