-- Sliding log: one member for each unit, scored with its time. Members consist of the time and a
-- number, so that units of one instant are distinct. A mark is a member with a score before all
-- times.
-- rule: kind, limit, period.
log = {}
-- The units to write at the end, and the number of entries that have left the window.
local gone = {}
added = {}

local function instant(k) return y[k] > now and y[k] or now end

local function count_live(k, rule)
    local key = KEYS[k]
    gone[k] = call('ZCOUNT', key, '-inf', instant(k) - rule[3])
    x[k] = call('ZCARD', key) - gone[k]
end

local function newest(k)
    local last = call('ZREVRANGE', KEYS[k], 0, 0, 'WITHSCORES')
    y[k] = math.max(tonumber(last[2] or 0), 0)
end

-- Shifts the whole log so that its newest unit is at now.
local function pull_back(k)
    local ahead, all = y[k] - now, call('ZRANGE', KEYS[k], 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
        local at = tonumber(all[i + 1])
        if at >= 0 then call('ZADD', KEYS[k], math.max(at - ahead, 0), all[i]) end
    end
    y[k], changed[k] = now, true
end

function log.load(k, rule)
    added[k] = 0
    newest(k)
    if y[k] - now > 2 * rule[3] then pull_back(k) end
    count_live(k, rule)
    return true
end

-- Returns the first unused number among the members of one instant.
local function first_free(k, at)
    local taken, first = call('ZRANGEBYSCORE', KEYS[k], at, at), 0
    for _, member in ipairs(taken) do
        local number = tonumber(string.match(member, '%-(%d+)$') or 0)
        if number >= first then first = number + 1 end
    end
    return first
end

function log.save(k, rule)
    local key, at = KEYS[k], instant(k)
    call('ZREMRANGEBYSCORE', key, '-inf', at - rule[3])
    if added[k] > 0 then
        local first, text = first_free(k, at), string.format('%.0f-', at)
        local batch = {}
        for i = 0, added[k] - 1 do
            batch[#batch + 1] = at
            batch[#batch + 1] = text .. string.format('%.0f', first + i)
            if #batch == 2000 then
                call('ZADD', key, unpack(batch))
                batch = {}
            end
        end
        if #batch > 0 then call('ZADD', key, unpack(batch)) end
        added[k] = 0
        y[k] = at
    end
    if y[k] > 0 then keep_set(k, y[k] + rule[3]) end
end

function log.state(k, out)
    out[#out + 1] = x[k] + added[k]
    out[#out + 1] = added[k] > 0 and instant(k) or (x[k] > 0 and y[k] or 0)
end

function log.left(k, rule)
    return math.max(rule[2] - x[k] - added[k], 0)
end

function log.spend(k, rule, cost)
    if x[k] + added[k] + cost > rule[2] then return false end
    added[k], changed[k] = added[k] + cost, true
    return true
end

-- Returns when `cost` units are available if no other request spends; 0 if they are available now.
function log.free_at(k, rule, cost)
    local excess = x[k] + added[k] + cost - rule[2]
    if excess <= 0 or cost > rule[2] then return 0 end
    if excess > x[k] then return instant(k) + rule[3] end
    local at = gone[k] + excess - 1
    return call('ZRANGE', KEYS[k], at, at, 'WITHSCORES')[2] + rule[3]
end

-- Reads the set again after it was changed directly.
local function reload(k, rule)
    newest(k)
    count_live(k, rule)
    changed[k] = true
end

function log.give(k, rule, units)
    log.save(k, rule)
    if units > 0 then call('ZREMRANGEBYRANK', KEYS[k], -math.min(units, 65536 * 2), -1) end
    reload(k, rule)
end

function log.refund(k, rule, units, taken_at)
    if taken_at + rule[3] <= instant(k) or units == 0 then return end
    log.save(k, rule)
    local first = call('ZRANGEBYSCORE', KEYS[k], taken_at, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then
        local at = first[2]
        local members = call('ZRANGEBYSCORE', KEYS[k], at, at, 'LIMIT', 0, math.min(units, 65536 * 2))
        for i = 1, #members, 1000 do
            call('ZREM', KEYS[k], unpack(members, i, math.min(i + 999, #members)))
        end
    end
    reload(k, rule)
end

function log.charge(k, rule, units, overdrawn)
    local most = overdrawn and 2 * rule[2] or rule[2]
    if overdrawn == 'all' then most = 131072 end
    local more = math.min(units, math.max(most - x[k] - added[k], 0))
    if more > 0 then added[k], changed[k] = added[k] + more, true end
end

function log.used(k)
    return x[k] + added[k]
end

function log.load_mark(k)
    local mark = call('ZRANGEBYSCORE', KEYS[k], -1, -1)[1]
    marked[k] = mark and string.sub(mark, 2) or nil
end

function log.save_mark(k)
    call('ZREMRANGEBYSCORE', KEYS[k], -1, -1)
    call('ZADD', KEYS[k], -1, '~' .. marked[k])
end

-- Copies the same instants.
function log.carry(k, rule, past)
    local since = string.format('(%.0f', instant(past) - rule[3])
    local all, batch = call('ZRANGEBYSCORE', KEYS[past], since, '+inf', 'WITHSCORES'), {}
    for i = 1, #all, 2 do
        batch[#batch + 1], batch[#batch + 2] = all[i + 1], all[i]
        if #batch == 2000 or i + 1 == #all then
            call('ZADD', KEYS[k], unpack(batch))
            batch = {}
        end
    end
    reload(k, rule)
    return true
end

function log.reset(k)
    call('DEL', KEYS[k])
    x[k], y[k], added[k], gone[k], changed[k] = 0, 0, 0, 0, true
end
