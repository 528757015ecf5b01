-- A fast script for the most common calls: requests for token buckets whose unit is a whole number
-- of ticks. The arithmetic is that of bucket.lua, on one number.
--
-- ARGV[1], one MessagePack array: count of rules, and for each rule the ticks of a full bucket, the
-- length of an epoch and the maximum debt in ticks; the rule of each key; count of items, and for
-- each item the count of identical requests, the count of checks, and for each check its key and its
-- price. An item with a count of 0 is about a lease. Then 1: key, units, price of a unit, twice the
-- life. Then 2, a return: key, price, time and end of the lease.
--
-- Reply: 1, now, the arrival time of each key before the call, the number of admitted requests of
-- each item, or after a return the arrival time. A key that holds foreign data has -1, as have its
-- items.
local call, floor = redis.call, math.floor
local a, keys = cmsgpack.unpack(ARGV[1]), #KEYS
local at, out = 1 + 3 * a[1], { 1, now }
local before, x, rules, marked = {}, {}, {}, {}

local texts, missing = call('MGET', unpack(KEYS)), {}
for k = 1, keys do
    local tat = texts[k]
    if tat then
        -- The mark means that the state was carried over to another rule; see frame.lua.
        if #tat > 16 and string.sub(tat, 17, 17) == '~' then tat, marked[k] = string.sub(tat, 1, 16), true end
        -- Sixteen digits: every time between 2001 and 2286 has that many.
        tat = #tat == 16 and tonumber(tat) or -1
        if tat < 1000000000000000 or tat % 1 ~= 0 then tat = -1 end
    else
        tat = 0
        missing[#missing + 1] = KEYS[k]
    end
    local rule = 3 * a[at + k] - 1
    -- A time beyond the maximum debt comes from a clock that stepped back.
    rules[k], before[k] = rule, tat
    if tat - now > a[rule + 2] then tat = now + a[rule + 2] end
    x[k], out[k + 2] = tat, tat
end
if #missing > 0 and call('EXISTS', unpack(missing)) > 0 then
    for k = 1, keys do
        if before[k] == 0 and call('EXISTS', KEYS[k]) == 1 then x[k], before[k], out[k + 2] = -1, -1, -1 end
    end
end

at = at + keys + 1
for item = 1, a[at] do
    local many, n, fit = a[at + 1], a[at + 2], 0
    at = at + 2
    if many == 0 then
        local k = a[at + 1]
        if x[k] < 0 then
            fit = -1
        elseif n == 1 then
            local units, price, pad = a[at + 2], a[at + 3], a[at + 4]
            -- Charged as if it were spent one life after its end.
            local debt = x[k] - now > pad and x[k] - now or pad
            local leased = floor((a[rules[k]] - debt) / price)
            if leased > units then leased = units end
            if leased > 0 then x[k] = now + debt + leased * price end
            fit = 1
        else
            if x[k] > now and a[at + 3] <= now and now <= a[at + 4] then
                local due = x[k] - now - a[at + 2]
                x[k] = due > 0 and now + due or now
            end
            fit = x[k]
        end
        -- Four numbers, of which the end of the loop skips two for each check.
        at, n = at + 4, 0
    elseif n == 1 then
        local k, price = a[at + 1], a[at + 2]
        local due = x[k] > now and x[k] or now
        fit = price > 0 and floor((a[rules[k]] - due + now) / price) or many
        if fit > many then fit = many end
        if x[k] < 0 then
            fit = -1
        elseif fit > 0 then
            if price > 0 then x[k] = due + fit * price end
        else
            fit = 0
        end
    else
        local refused = false
        for i = 1, n do
            if x[a[at + 2 * i - 1]] < 0 then refused, fit = true, -1 end
        end
        while fit < many and not refused do
            local was = {}
            for i = 1, n do
                local k, price = a[at + 2 * i - 1], a[at + 2 * i]
                was[i] = x[k]
                if price > 0 then
                    local after = (x[k] > now and x[k] or now) + price
                    if after - now > a[rules[k]] then
                        for back = i - 1, 1, -1 do x[a[at + 2 * back - 1]] = was[back] end
                        refused = true
                        break
                    end
                    x[k] = after
                end
            end
            if not refused then fit = fit + 1 end
        end
    end
    at = at + 2 * n
    out[keys + 2 + item] = fit
end

-- A key is kept to the end of its epoch, which follows from its arrival time. Only a request that
-- enters a new epoch sets a new expiry; the others use INCRBY.
for k = 1, keys do
    local tat, was = x[k], before[k]
    if tat ~= was and tat >= 0 then
        local era = a[rules[k] + 1]
        local ends = tat - tat % era + era
        if was > 0 and ends == was - was % era + era and not marked[k] then
            call('INCRBY', KEYS[k], tat - was)
        else
            call('PSETEX', KEYS[k], floor((ends - now) / 1000) + 1 + MARGIN, string.format('%.0f', tat))
        end
    end
end
return out
