-- Reads the request, decides its items in order, and writes the changed states.
--
-- ARGV[1] is one MessagePack array of numbers (and owners, as text):
--   rules: count, then for each rule: count of numbers, and the numbers
--   keys:  count, then for each key: its rule, the count of rules that its rule replaced, and for
--          each of those, latest first, the rule and whether (1) the present rule is a raise of it.
--          KEYS has the same order; the names under the replaced rules follow each key, and the
--          markers follow all keys.
--   items: count, then for each item:
--     0 (identical requests): count of requests, count of checks, and for each check:
--         key, manner, and the arguments of its kind (`arguments`)
--     1 to 6, 8, 9 (refund, grant, charge, charge with overdraft, reset, release; renew; return of a
--         lease): key, the time and the end of the charge (refund) or of the lease, and the arguments
--         of its kind
--     7 (once): index of a marker in KEYS and its lifetime in milliseconds, then one of the others. If
--         the marker exists, the change was applied before and is skipped.
-- manner: sum of 1 binding, 2 counts refusals, 4 takes up to, 8 only peeks, 16 leases up to; twice the
-- life of the lease follows the arguments.
-- `at` is the index of the last number that was read.
--
-- Reply: 1, now, the state of each key before the call, the result of each item. The result of
-- requests is the number admitted and, for each check of a log or of slots, when it can be met
-- (0: now; -1: the owner held the slot before), and for slots the end of the last lease after that.
-- The result of a change is the state after it, and for a renewal whether (1) the owner holds its slot,
-- unless the value is foreign. Or 2, now: the calendar pages do not cover now, and
-- nothing was done.
local a, at = cmsgpack.unpack(ARGV[1]), 1
local kinds = { bucket, fixed, sliding, parts, log, slots }
local LOG, SLOTS = 5, 6
-- Later than any time.
local UNKNOWN = 9007199254740991
local out = { 1, now }

local rules = {}
for r = 1, a[1] do
    local n, rule = a[at + 1], {}
    for i = 1, n do rule[i] = a[at + 1 + i] end
    rules[r], at = rule, at + 1 + n
    if rule[1] == 2 and rule[4] == 2 and (now < rule[6] or now >= rule[8]) then return { 2, now } end
end

local texts = call('MGET', unpack(KEYS))

-- Loads the states. All texts are read with one MGET; a value that Tollgate did not write is
-- detected, whatever its type.
local function load(k, rule, raw)
    rule_of[k] = rule
    if rule[1] >= LOG then
        local kind = call('TYPE', KEYS[k]).ok
        return (kind == 'zset' or kind == 'none') and kinds[rule[1]].load(k, rule)
    end
    if raw == false and call('EXISTS', KEYS[k]) == 1 then return false end
    if raw then raw, marked[k] = split_mark(raw) end
    return kinds[rule[1]].load(k, rule, raw)
end

-- Charges units that another rule has admitted.
local function echo(k, rule, units)
    if rule[1] == 1 then
        bucket.echo(k, rule, units)
    else
        kinds[rule[1]].charge(k, rule, units, 'all')
    end
end

local function capacity(rule) return rule[1] == 1 and rule[6] or rule[2] end

-- Returns the indices of the replaced rules' states that still count, latest first, and whether one
-- of them has not been carried over to the present rule yet.
local function live_past(first, before, mine)
    local live, is_new = {}, false
    for i, old in ipairs(before) do
        local past = first + i
        if old[1] ~= SLOTS and load(past, old, texts[past]) then
            if kinds[old[1]].used(past, old) > 0 then
                if old[1] == LOG then log.load_mark(past) end
                live[#live + 1], is_past[past] = i, true
                if marked[past] ~= mine then is_new = true end
            end
            changed[past] = nil
        end
    end
    return live, is_new
end

-- Returns the rule that counted the key last: the latest rule with spent units, or a later rule
-- that all of those were carried over to and whose state is empty by now.
local function last_in_force(first, live)
    for i = 1, live[1] - 1 do
        local id, all = id_of(first + i), true
        for _, at in ipairs(live) do
            if marked[first + at] ~= id then all = false end
        end
        if all then return i, true end
    end
    return live[1], false
end

-- Carries over the units that a key spent under the rules that its present rule replaced, converted
-- to the present rule. The arithmetic is that of tollgate_core (carry.rs).
local function carry_over(k, rule, before, raises, live)
    local last, rested = last_in_force(k, live)
    local kind, old, most = kinds[rule[1]], before[last], 0
    for _, at in ipairs(live) do
        most = math.max(most, kinds[before[at][1]].used(k + at, before[at]))
    end
    kind.reset(k, rule)
    if not rested then
        if old[1] ~= rule[1] or not kind.carry or not kind.carry(k, rule, k + last, old) then
            echo(k, rule, kinds[old[1]].used(k + last, old))
        end
    end
    local missing = most - kind.used(k, rule)
    if raises[last] == 1 then missing = math.min(missing, capacity(rule) - capacity(old)) end
    if missing > 0 then echo(k, rule, missing) end
    if rule[1] == 1 then
        for _, at in ipairs(live) do
            if before[at][1] == 1 then bucket.cover(k, rule, k + at, before[at]) end
        end
        if raises[last] == 1 then bucket.relieve(k, rule, k + last, old) end
    end
    -- Written even if the request is refused: otherwise it would be carried over again at each
    -- call, and would never decay.
    changed[k] = true
    local mine = id_of(k)
    for _, at in ipairs(live) do
        marked[k + at], changed[k + at] = mine, true
    end
end

-- Makes as much available as under a rule that the present rule raises.
local function relieve(k, rule, before, raises, live)
    for _, at in ipairs(live) do
        local old = before[at]
        if raises[at] == 1 and old[1] == 1 then bucket.relieve(k, rule, k + at, old) end
    end
end

local place, key_at = {}, 0
-- For each key that has any, the indices of the replaced rules' states that count; and the units
-- spent in this call.
local past_of, spent, padded = {}, {}, {}
at = at + 1
for k = 1, a[at] do
    local rule, n = rules[a[at + 1]], a[at + 2]
    local key, before, raises = key_at + 1, {}, {}
    for i = 1, n do before[i], raises[i] = rules[a[at + 1 + 2 * i]], a[at + 2 + 2 * i] end
    at, key_at = at + 2 + 2 * n, key_at + 1 + n
    place[k] = key
    if load(key, rule, texts[key]) then
        if n > 0 and rule[1] ~= SLOTS then
            local live, is_new = live_past(key, before, id_of(key))
            if #live > 0 then
                if kinds[rule[1]].used(key, rule) > 0 then
                    if rule[1] == 1 then relieve(key, rule, before, raises, live) end
                elseif is_new then
                    carry_over(key, rule, before, raises, live)
                end
                past_of[key] = live
            end
        end
        kinds[rule[1]].state(key, out, rule)
    else
        foreign[key] = true
        out[#out + 1] = -1
    end
end

local function note_spent(k, units)
    if past_of[k] then spent[k] = (spent[k] or 0) + units end
end

-- Reads the arguments of a check of this kind: units with their price, or an owner.
local function arguments(kind)
    if kind == 1 then
        at = at + 3
        return a[at - 2], a[at - 1], a[at]
    end
    at = at + 1
    return a[at]
end

-- The checks of the current request: key, manner, cost or owner, its price; and the states before,
-- to undo a refused request.
local key_of, manner_of, cost_of, ticks_of, grains_of, pad_of = {}, {}, {}, {}, {}, {}
local x_before, y_before, changed_before, taken, free, last_after = {}, {}, {}, {}, {}, {}

local function undo(last)
    for i = last, 1, -1 do
        local k, units = key_of[i], taken[i]
        if units then
            local kind = rule_of[k][1]
            if kind == 3 then y[k][1] = y[k][1] - units
            elseif kind == LOG then added[k] = added[k] - units
            elseif kind == SLOTS then slots.put_back(k, rule_of[k], cost_of[i], x_before[i])
            else x[k], y[k] = x_before[i], y_before[i] end
            changed[k] = changed_before[i]
        end
    end
end

-- Acquires a slot if one is free. A check for units is always refused here.
local function hold(i, k, rule, owner)
    free[i] = now + 1
    if manner_of[i] >= 8 then
        free[i] = 0
        return true
    end
    if type(owner) ~= 'string' then return false end
    free[i] = slots.free_at(k, rule, owner)
    if free[i] > 0 then return false end
    taken[i], changed_before[i] = 1, changed[k]
    x_before[i] = slots.take(k, rule, owner)
    last_after[i] = y[k]
    return true
end

-- Leases up to `units` units, of a limit whose units can be leased.
local function lease(i, k, rule, units)
    local kind = kinds[rule[1]]
    if not kind.lease then return end
    units = math.min(units, kind.leasable(k, rule, pad_of[i]))
    if units <= 0 then return end
    x_before[i], y_before[i], changed_before[i] = x[k], y[k], changed[k]
    kind.lease(k, rule, units, pad_of[i])
    taken[i] = units
end

-- Acquires one check and returns whether it was met.
local function meet(i)
    local k, manner, cost = key_of[i], manner_of[i], cost_of[i]
    local rule = rule_of[k]
    taken[i] = nil
    if rule[1] == SLOTS then return hold(i, k, rule, cost) end
    if manner >= 16 then
        lease(i, k, rule, cost)
        return true
    end
    if cost == 0 then return rule[1] ~= 2 or fixed.passes(k, rule) end
    local kind, ticks, grains = kinds[rule[1]], ticks_of[i], grains_of[i]
    if manner % 8 >= 4 then
        cost = math.min(cost, math.max(kind.left(k, rule), 1))
        if kind == bucket then ticks, grains = bucket.price(rule, cost) end
    end
    if cost > (kind == bucket and rule[6] or rule[2]) then return false end
    x_before[i], y_before[i], changed_before[i] = x[k], y[k], changed[k]
    if not kind.spend(k, rule, cost, ticks, grains) then
        if kind == log then free[i] = log.free_at(k, rule, cost) end
        return false
    end
    taken[i] = cost
    return true
end

-- Decides one request against all of its checks: charges all of them or none.
local function try(n)
    local admitted = true
    for i = 1, n do
        if not meet(i) and manner_of[i] % 2 == 1 then admitted = false end
    end
    if not admitted then
        undo(n)
        return false
    end
    for i = 1, n do
        if taken[i] then
            local k = key_of[i]
            if rule_of[k][1] == SLOTS then slots.drop_lapsed(k) else note_spent(k, taken[i]) end
            if manner_of[i] >= 16 then padded[k] = math.max(padded[k] or 0, pad_of[i]) end
        end
    end
    return true
end

-- Decides many requests for one plain bucket at once: admits as many as fit.
local function take_up_to(k, rule, many, cost, price)
    local due = x[k] > now and x[k] or now
    local fit = floor((rule[4] - (due - now)) / price)
    if fit > many then fit = many end
    if cost == 0 then fit = many end
    if fit < 0 or cost > rule[6] then fit = 0 end
    if fit > 0 and cost > 0 then
        x[k], changed[k] = due + fit * price, true
        note_spent(k, fit * cost)
    end
    return fit
end

local function requests()
    local many, n = a[at + 1], a[at + 2]
    local whole = true
    at = at + 2
    for i = 1, n do
        local k, manner = place[a[at + 1]], a[at + 2]
        local rule = rule_of[k]
        at = at + 2
        key_of[i], manner_of[i], free[i], last_after[i] = k, manner, 0, 0
        cost_of[i], ticks_of[i], grains_of[i] = arguments(rule[1])
        if manner >= 16 then
            at = at + 1
            pad_of[i] = a[at]
        end
        if foreign[k] then
            whole = false
        elseif n == 1 and manner == 1 and rule[1] == 1 and rule[2] == 1 then
            out[#out + 1] = take_up_to(k, rule, many, cost_of[i], ticks_of[i])
            return
        end
    end
    if not whole then
        out[#out + 1] = -1
        return
    end
    local admitted = 0
    while admitted < many and try(n) do admitted = admitted + 1 end
    out[#out + 1] = admitted
    if admitted < many then
        for i = 1, n do
            local k = key_of[i]
            local rule = rule_of[k]
            if manner_of[i] % 4 >= 2 and rule[1] ~= SLOTS then
                kinds[rule[1]].charge(k, rule, cost_of[i], false, ticks_of[i], grains_of[i])
                note_spent(k, cost_of[i])
                changed[k] = true
            end
        end
    end
    for i = 1, n do
        local k = key_of[i]
        local rule = rule_of[k]
        -- When the check can be met: only the server has the whole log.
        if rule[1] == LOG and free[i] > 0 and manner_of[i] % 4 >= 2 and admitted < many then
            -- The log has been charged since, so the wait may be longer.
            local cost = cost_of[i]
            if manner_of[i] % 8 >= 4 then cost = 1 end
            free[i] = math.max(free[i], log.free_at(k, rule, cost))
        end
        if rule[1] >= LOG then out[#out + 1] = free[i] end
        if rule[1] == SLOTS then out[#out + 1] = last_after[i] end
    end
end

-- Applies a change of the present rule to the states of the replaced rules.
local function change_past(k, what, units, taken_at, ends)
    local rule = rule_of[k]
    -- The end of a charge under a replaced rule is not known, except for a place in a queue.
    if rule[1] == 1 and rule[13] ~= 1 then ends = UNKNOWN end
    local kind, ticks, grains = kinds[rule[1]], nil, nil
    if rule[1] == 1 and what <= 2 then ticks, grains = bucket.price_of_change(rule, units) end
    if what == 1 then kind.refund(k, rule, units, taken_at, ends, ticks, grains)
    elseif what == 2 then kind.give(k, rule, units, ticks, grains)
    elseif what <= 4 then echo(k, rule, units)
    elseif what == 5 then kind.reset(k, rule) end
    changed[k] = true
end

-- The lifetimes of the markers to write, by name: a call may contain a change twice.
local markers = {}

local function change(what)
    local marker, lifetime
    if what == 7 then
        marker, lifetime, what = a[at + 1], a[at + 2], a[at + 3]
        at = at + 3
    end
    local k, taken_at, ends, owner = place[a[at + 1]], nil, nil, nil
    local rule = rule_of[k]
    local kind = kinds[rule[1]]
    at = at + 1
    if what == 1 or what == 9 then
        at = at + 2
        taken_at, ends = a[at - 1], a[at]
    elseif what == 6 or what == 8 then
        at = at + 1
        owner = a[at]
    end
    local units, ticks, grains
    local renewed = 0
    if what <= 4 or what == 9 then units, ticks, grains = arguments(rule[1]) end
    if foreign[k] then
        out[#out + 1] = -1
        return
    end
    if marker then
        if texts[marker] or markers[KEYS[marker]] then
            kind.state(k, out, rule)
            if what == 8 then out[#out + 1] = 0 end
            return
        end
        markers[KEYS[marker]] = lifetime
    end
    if what == 5 then
        kind.reset(k, rule)
    elseif kind == slots then
        if what == 2 and units > 0 then slots.give(k, rule, units) end
        if what == 6 then slots.release(k, rule, owner) end
        if what == 8 then renewed = slots.renew(k, rule, owner) end
    elseif what == 1 then
        kind.refund(k, rule, units, taken_at, ends, ticks, grains)
    elseif what == 2 then
        kind.give(k, rule, units, ticks, grains)
    elseif what <= 4 then
        kind.charge(k, rule, units, what == 4, ticks, grains)
    elseif what == 9 and kind.return_lease then
        kind.return_lease(k, rule, units, taken_at, ends, ticks, grains)
    end
    if past_of[k] and what <= 5 then
        for _, at in ipairs(past_of[k]) do change_past(k + at, what, units, taken_at, ends) end
    end
    -- Marked as changed in any case, so that a state that equals a fresh one is deleted.
    if kind ~= slots then changed[k] = true end
    kind.state(k, out, rule)
    if what == 8 then out[#out + 1] = renewed end
end

at = at + 1
for _ = 1, a[at] do
    at = at + 1
    if a[at] == 0 then requests() else change(a[at]) end
end

for k, units in pairs(spent) do
    for _, at in ipairs(past_of[k]) do
        local rule = rule_of[k + at]
        if padded[k] and rule[1] == 1 then bucket.pad(k + at, rule, padded[k]) end
        echo(k + at, rule, units)
        changed[k + at] = true
    end
end

for k in pairs(changed) do
    local rule = rule_of[k]
    kinds[rule[1]].save(k, rule)
    if is_past[k] and marked[k] and call('EXISTS', KEYS[k]) == 1 then
        if rule[1] == LOG then log.save_mark(k) else call('APPEND', KEYS[k], '~' .. marked[k]) end
    end
end

-- After the states: if the script fails in between, a repetition charges twice rather than never.
for name, lifetime in pairs(markers) do call('SET', name, '1', 'PX', lifetime) end
return out
