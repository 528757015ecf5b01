-- Functions that the algorithms share. Numbers are whole microseconds and units, all below 2^53,
-- where a double is exact; larger products are split (see `scaled`).
--
-- The state of key k is x[k] and y[k], with a meaning that depends on the algorithm:
--   buckets          x: arrival time      y: grains of the next tick
--   fixed windows    x: end               y: count
--   sliding windows  x: newest window     y: counts, newest first
--   in parts         x: newest time       y: first, last and count of each part, oldest first
--   logs             x: units in view     y: time of the newest unit, 0 if empty
--   slots            x: active leases     y: end of the last lease, 0 if empty
local call, floor = redis.call, math.floor
local x, y, changed, foreign = {}, {}, {}, {}
-- A text that ends in `~` and the ID of a rule has been carried over to that rule, which replaced
-- its own rule and does not count it again. Nodes that still have the old rule continue with it.
local marked, is_past = {}, {}
local rule_of = {}
-- One table for each algorithm; algorithms that a call does not need are not part of its script.
local bucket, fixed, sliding, parts, log, slots
local added

-- Returns a text without its mark, and the mark. An earlier version wrote a mark without an ID.
local function split_mark(text)
    if string.sub(text, -17, -17) == '~' and string.match(string.sub(text, -16), '^%x+$') then
        return string.sub(text, 1, -18), string.sub(text, -16)
    end
    if string.sub(text, -1) == '~' then return string.sub(text, 1, -2), '' end
    return text, nil
end

-- Returns the ID of the rule of a key, as written in its name.
local function id_of(k)
    return string.match(KEYS[k], 'tg1:{%d+}:(%x+):') or ''
end

-- Returns floor((a * b + c) / d) and the remainder, exactly, for a < 2^53 and d, b * 31 < 2^48
-- (approximately): long division, five bits at a time.
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

-- Stores a text until `ends`, or deletes a key whose state equals a fresh one.
local function keep(k, text, ends)
    if ends > now then
        call('SET', KEYS[k], text, 'PX', math.ceil((ends - now) / 1000) + MARGIN)
    else
        call('DEL', KEYS[k])
    end
end

-- Appends a state of two numbers to the reply.
local function tell_pair(k, out)
    out[#out + 1] = x[k]
    out[#out + 1] = y[k]
end

local function clear_pair(k)
    x[k], y[k], changed[k] = 0, 0, true
end

-- Keeps a sorted set until `ends`, like `keep`.
local function keep_set(k, ends)
    call('PEXPIRE', KEYS[k], math.max(math.ceil((ends - now) / 1000), 0) + MARGIN)
end
