-- What the parts below share. Numbers are whole microseconds and units, all below 2^53,
-- where a double is exact; products that are not stay apart (see `scaled`).
--
-- A key's state is x[k] and y[k], whatever its kind makes of them:
--   buckets          x: arrival time      y: grains of the next tick
--   fixed windows    x: end               y: count
--   sliding windows  x: newest window     y: counts, the newest first
--   in parts         x: newest time       y: first, last and count of each, the oldest first
--   logs             x: units in view     y: time of the newest, 0 if none
--   slots            x: leases that run   y: when the last of them ends, 0 if none
local call, floor = redis.call, math.floor
local x, y, changed, foreign = {}, {}, {}, {}
-- A text that ends in `~` and a rule's id has been carried over to that rule, which replaced
-- its own and does not count it twice. Nodes that still have the old rule go on with it.
local marked, is_past = {}, {}
local rule_of = {}
-- One for each algorithm; those that a call does not need are not part of its script.
local bucket, fixed, sliding, parts, log, slots
local added

-- A text without its mark, and the mark. An earlier version wrote no id.
local function split_mark(text)
    if string.sub(text, -17, -17) == '~' and string.match(string.sub(text, -16), '^%x+$') then
        return string.sub(text, 1, -18), string.sub(text, -16)
    end
    if string.sub(text, -1) == '~' then return string.sub(text, 1, -2), '' end
    return text, nil
end

-- The id of the rule that a key is counted by, as it stands in its name.
local function id_of(k)
    return string.match(KEYS[k], 'tg1:{%d+}:(%x+):') or ''
end

-- floor((a * b + c) / d) and the rest, exactly, for a < 2^53 and d, b * 31 < 2^48 or so:
-- long division, five bits at a time.
local function scaled(a, b, c, d)
    if a * b + c < 9007199254740992 then
        local product = a * b + c
        local quotient = floor(product / d)
        return quotient, product - quotient * d
    end
    local quotient, rest, power = 0, 0, 1
    while power <= a do power = power * 32 end
    while power > 1 do
        power = power / 32
        local digit = floor(a / power)
        a = a - digit * power
        rest = rest * 32 + digit * b
        local part = floor(rest / d)
        quotient = quotient * 32 + part
        rest = rest - part * d
    end
    rest = rest + c
    local part = floor(rest / d)
    return quotient + part, rest - part * d
end

-- Keeps a text until `ends`, or forgets a key that says no more than a fresh one would.
local function keep(k, text, ends)
    if ends > now then
        call('SET', KEYS[k], text, 'PX', math.ceil((ends - now) / 1000) + MARGIN)
    else
        call('DEL', KEYS[k])
    end
end

-- Tells a state of two numbers, and forgets one.
local function tell_pair(k, out)
    out[#out + 1] = x[k]
    out[#out + 1] = y[k]
end

local function clear_pair(k)
    x[k], y[k], changed[k] = 0, 0, true
end

-- A sorted set is kept until `ends` in the same way.
local function keep_set(k, ends)
    call('PEXPIRE', KEYS[k], math.max(math.ceil((ends - now) / 1000), 0) + MARGIN)
end
