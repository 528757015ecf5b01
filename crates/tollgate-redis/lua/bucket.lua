-- Token bucket, meter, GCRA: the theoretical arrival time in ticks, and its fraction in grains of
-- 1/den tick.
-- rule: kind, den, grains per unit, ticks and grains of a full bucket, its whole units, epoch,
-- maximum debt in ticks and grains; ticks, grains and whole units of the horizon, the largest bucket
-- with the same states, which is the bucket itself unless it is a queue; 1 for a queue.
bucket = {}

-- Returns the ticks and grains until the bucket is full.
local function debt(k)
    local ahead = x[k] - now
    if ahead < 0 then return 0, 0 end
    return ahead, y[k]
end

local function owe(k, ticks, grains)
    x[k], y[k], changed[k] = now + ticks, grains, true
end

local function plus(rule, t, g, more_t, more_g)
    t, g = t + more_t, g + more_g
    if g >= rule[2] then return t + 1, g - rule[2] end
    return t, g
end

local function minus(rule, t, g, less_t, less_g)
    t, g = t - less_t, g - less_g
    if g < 0 then t, g = t - 1, g + rule[2] end
    if t < 0 then return 0, 0 end
    return t, g
end

local function exceeds(t, g, most_t, most_g)
    return t > most_t or (t == most_t and g > most_g)
end

function bucket.load(k, rule, raw)
    if rule[2] == 1 and raw then
        -- Sixteen digits: every time between 2001 and 2286 has that many.
        if not string.match(raw, '^[1-9]%d+$') or #raw ~= 16 then return false end
        x[k], y[k] = tonumber(raw), 0
    elseif raw then
        local tat, grains = string.match(raw, '^(%d+) (%d+)$')
        if not tat then return false end
        x[k], y[k] = tonumber(tat), tonumber(grains)
        -- A fraction in finer grains than those of this rule is less than one tick.
        if y[k] >= rule[2] then x[k], y[k] = x[k] + 1, 0 end
    else
        x[k], y[k] = 0, 0
    end
    local t, g = debt(k)
    if exceeds(t, g, rule[8], rule[9]) then owe(k, rule[8], rule[9]) end
    return true
end

-- The key is kept to the end of its epoch: plain.lua relies on that.
function bucket.save(k, rule)
    local ends = y[k] > 0 and x[k] + 1 or x[k]
    if ends > now then ends = x[k] - math.fmod(x[k], rule[7]) + rule[7] end
    keep(k, string.format(rule[2] == 1 and '%.0f' or '%.0f %.0f', x[k], y[k]), ends)
end

function bucket.state(k, out, rule)
    out[#out + 1] = x[k]
    if rule[2] > 1 then out[#out + 1] = y[k] end
end

-- Returns the available whole units.
function bucket.left(k, rule)
    local t, g = debt(k)
    t, g = minus(rule, rule[4], rule[5], t, g)
    local units = scaled(t, rule[2], g, rule[3])
    return units
end

function bucket.price(rule, units)
    return scaled(units, rule[3], 0, rule[2])
end

-- Returns the price of the units of a change, and at most that of the maximum debt.
function bucket.price_of_change(rule, units)
    local most, rest = scaled(rule[8], rule[2], rule[9], rule[3])
    return bucket.price(rule, math.min(units, rest > 0 and most + 1 or most))
end

-- The caller passes the price of `cost` units in ticks and grains.
function bucket.spend(k, rule, cost, price_t, price_g)
    local t, g = debt(k)
    t, g = plus(rule, t, g, price_t, price_g)
    if exceeds(t, g, rule[4], rule[5]) then return false end
    owe(k, t, g)
    return true
end

-- Returns the whole units that can be leased: those beside the refill of two lives, `pad` ticks.
function bucket.leasable(k, rule, pad)
    if rule[13] == 1 then return 0 end
    local t, g = debt(k)
    if t < pad then t, g = pad, 0 end
    if exceeds(t, g, rule[4], rule[5]) then return 0 end
    t, g = minus(rule, rule[4], rule[5], t, g)
    local units = scaled(t, rule[2], g, rule[3])
    return units
end

-- Raises the debt to the refill of two lives of a lease, `pad` ticks, and at most to a full bucket.
function bucket.pad(k, rule, pad)
    pad = math.min(pad, rule[4])
    if rule[13] ~= 1 and exceeds(pad, 0, debt(k)) then owe(k, pad, 0) end
end

-- Charges units as if they were spent one life after the end of their lease.
function bucket.lease(k, rule, units, pad)
    local t, g = debt(k)
    if t < pad then t, g = pad, 0 end
    owe(k, plus(rule, t, g, bucket.price(rule, units)))
end

-- Returns units of a lease, from its time to its end.
function bucket.return_lease(k, rule, units, taken_at, ends, price_t, price_g)
    if rule[13] == 1 or now < taken_at or now > ends then return end
    bucket.give(k, rule, units, price_t, price_g)
end

function bucket.give(k, rule, _, price_t, price_g)
    local t, g = debt(k)
    owe(k, minus(rule, t, g, price_t, price_g))
end

-- Refunds units of a charge that was made at `taken_at` and ends at `ends`. A queue refunds only its
-- last place: requests behind another place keep their times.
function bucket.refund(k, rule, units, taken_at, ends, price_t, price_g)
    local left_t, left_g = math.max(ends - now, 0), 0
    if rule[13] == 1 then
        if (y[k] > 0 and x[k] + 1 or x[k]) ~= ends or ends <= now then return end
    else
        local full_t, full_g = minus(rule, rule[4], rule[5], math.max(now - taken_at, 0), 0)
        if exceeds(left_t, left_g, full_t, full_g) then left_t, left_g = full_t, full_g end
    end
    if exceeds(price_t, price_g, left_t, left_g) then price_t, price_g = left_t, left_g end
    bucket.give(k, rule, units, price_t, price_g)
end

local function charge_up_to(k, rule, price_t, price_g, most_t, most_g)
    local t, g = debt(k)
    local after_t, after_g = plus(rule, t, g, price_t, price_g)
    if exceeds(after_t, after_g, most_t, most_g) then
        if exceeds(t, g, most_t, most_g) then return end
        after_t, after_g = most_t, most_g
    end
    owe(k, after_t, after_g)
end

function bucket.charge(k, rule, _, overdrawn, price_t, price_g)
    local most_t, most_g = rule[4], rule[5]
    if overdrawn then most_t, most_g = plus(rule, most_t, most_g, most_t, most_g) end
    charge_up_to(k, rule, price_t, price_g, most_t, most_g)
end

-- Charges units that another rule has admitted, up to the horizon.
function bucket.echo(k, rule, units)
    local price_t, price_g = bucket.price(rule, math.min(units, rule[12] + 1))
    charge_up_to(k, rule, price_t, price_g, rule[10], rule[11])
end

-- Returns the units in use, rounded up.
function bucket.used(k, rule)
    local t, g = debt(k)
    local units, rest = scaled(t, rule[2], g, rule[3])
    return rest > 0 and units + 1 or units
end

-- Converts ticks and grains of another bucket to those of this bucket: the same number of units,
-- including the fraction, and at most the horizon.
local function converted(rule, t, g, old)
    local units, rest = scaled(t, old[2], g, old[3])
    -- One unit more than the whole units is always more than the horizon.
    local price_t, price_g = bucket.price(rule, math.min(units, rule[12] + 1))
    local part, more = scaled(rest, rule[3], 0, old[3])
    if more > 0 then part = part + 1 end
    local ticks = floor(part / rule[2])
    t, g = plus(rule, price_t, price_g, ticks, part - ticks * rule[2])
    if exceeds(t, g, rule[10], rule[11]) then return rule[10], rule[11] end
    return t, g
end

-- Converts the debt of another bucket's state.
local function converted_debt(rule, past, old)
    local t, g = debt(past)
    return converted(rule, t, g, old)
end

function bucket.carry(k, rule, past, old)
    owe(k, converted_debt(rule, past, old))
    return true
end

-- Raises the debt to at least that of the other bucket, including the fraction of a unit.
function bucket.cover(k, rule, past, old)
    local t, g = converted_debt(rule, past, old)
    local owed_t, owed_g = debt(k)
    if exceeds(t, g, owed_t, owed_g) then owe(k, t, g) end
end

-- Reduces the debt so that at least as much is available as in the other bucket, which is no
-- larger.
function bucket.relieve(k, rule, past, old)
    local t, g = converted_debt(rule, past, old)
    t, g = plus(rule, t, g, minus(rule, rule[4], rule[5], converted(rule, old[4], old[5], old)))
    local owed_t, owed_g = debt(k)
    if exceeds(t, g, rule[10], rule[11]) then t, g = rule[10], rule[11] end
    if exceeds(owed_t, owed_g, t, g) then owe(k, t, g) end
end

bucket.reset = clear_pair
