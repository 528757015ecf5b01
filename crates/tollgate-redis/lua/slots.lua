-- Concurrency: one member for each lease, named by its owner, scored with its end.
-- rule: kind, slots, ttl.
slots = {}

function slots.load(k, rule)
    local key = KEYS[k]
    local far = now + 2 * rule[3]
    x[k] = call('ZCARD', key) - call('ZCOUNT', key, '-inf', now)
    local last = tonumber(call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
    if last > far then
        -- A lease from before the clock stepped back counts as acquired now.
        local near = call('ZREVRANGEBYSCORE', key, far, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
        last = math.max(now + rule[3], tonumber(near[2] or 0))
    end
    y[k] = last > now and last or 0
    return true
end

local function pull_back(k, rule)
    local far = call('ZRANGEBYSCORE', KEYS[k], string.format('(%.0f', now + 2 * rule[3]), '+inf')
    for _, owner in ipairs(far) do call('ZADD', KEYS[k], now + rule[3], owner) end
end

function slots.save(k)
    if y[k] > 0 then keep_set(k, y[k]) end
end

slots.state = tell_pair

function slots.left(k, rule)
    return math.max(rule[2] - x[k], 0)
end

-- Returns when a slot is free for `owner`: 0 if now, -1 if the owner already holds one.
function slots.free_at(k, rule, owner)
    pull_back(k, rule)
    slots.load(k, rule)
    local held = call('ZSCORE', KEYS[k], owner)
    if held and tonumber(held) > now then return -1 end
    if x[k] < rule[2] then return 0 end
    local at = call('ZCARD', KEYS[k]) - rule[2]
    return tonumber(call('ZRANGE', KEYS[k], at, at, 'WITHSCORES')[2] or now)
end

-- Acquires a slot, and returns until when its owner held one before, if it did.
function slots.take(k, rule, owner)
    local held = call('ZSCORE', KEYS[k], owner)
    call('ZADD', KEYS[k], now + rule[3], owner)
    slots.load(k, rule)
    changed[k] = true
    return held or nil
end

function slots.drop_lapsed(k)
    call('ZREMRANGEBYSCORE', KEYS[k], '-inf', now)
end

-- Undoes `take`.
function slots.put_back(k, rule, owner, held)
    if held then call('ZADD', KEYS[k], held, owner) else call('ZREM', KEYS[k], owner) end
    slots.load(k, rule)
end

function slots.release(k, rule, owner)
    call('ZREM', KEYS[k], owner)
    slots.load(k, rule)
    changed[k] = true
end

-- Frees the slots whose leases end first.
function slots.give(k, rule, count)
    pull_back(k, rule)
    slots.drop_lapsed(k)
    call('ZREMRANGEBYRANK', KEYS[k], 0, count - 1)
    slots.load(k, rule)
    changed[k] = true
end

-- Starts the lease of an owner again, and returns 1, or 0 if it holds no slot.
function slots.renew(k, rule, owner)
    pull_back(k, rule)
    local held = call('ZSCORE', KEYS[k], owner)
    local is_held = held and tonumber(held) > now
    if is_held then call('ZADD', KEYS[k], now + rule[3], owner) end
    slots.load(k, rule)
    changed[k] = true
    return is_held and 1 or 0
end

function slots.reset(k)
    call('DEL', KEYS[k])
    x[k], y[k], changed[k] = 0, 0, true
end
