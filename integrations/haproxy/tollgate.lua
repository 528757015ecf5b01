-- Asks Tollgate about each request. For HAProxy 2.6 and later; needs no library.
--
--   http-request  lua.tollgate open|closed    asks, and answers refused requests itself
--   http-response lua.tollgate_headers        tells the clients of the others what is left
--
-- Without an answer `open` lets requests pass and `closed` answers 503. For logs and rules of your own there is
-- txn.tollgate: `admitted`, `refused` or `absent`.
--
-- Questions go through HAProxy itself, to `listen tollgate` in haproxy.cfg: HAProxy's Lua client asks again when it
-- sees no answer, which could charge a request twice. A `listen` asks once, keeps connections, and has timeouts and
-- health checks.

local ADDRESS = "abns@tollgate"

-- The token, if Tollgate wants one, from HAProxy's environment.
local TOKEN = os.getenv("TOLLGATE_TOKEN")

-- About the connection, about the body (which stays here), or ours to write.
local NOT_PASSED_ON = {
    ["connection"] = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["te"] = true,
    ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true, ["expect"] = true,
    ["content-length"] = true, ["content-encoding"] = true,
    ["x-original-uri"] = true, ["x-original-url"] = true, ["x-original-method"] = true,
    ["x-original-host"] = true, ["x-forwarded-for"] = true, ["x-forwarded-uri"] = true,
    ["x-forwarded-method"] = true, ["x-forwarded-host"] = true, ["forwarded"] = true,
    ["x-real-ip"] = true, ["tollgate-token"] = true,
}

-- About Tollgate's own answer, and not about limits.
local NOT_RELAYED = {
    ["connection"] = true, ["keep-alive"] = true, ["transfer-encoding"] = true,
    ["content-length"] = true, ["date"] = true,
}

-- HAProxy 2.6 crashes when its Lua client is given more than 101 header lines (tune.http.maxhdr), and adds a few
-- itself. Leaving some out could leave out the one that a limit counts by, so a request with more is not asked about.
local MOST_LINES = 80
local TOO_MANY_LINES = { status = 431, reason = "Request Header Fields Too Large", headers = {}, body = "" }

-- What clients are told without an answer.
local ABSENT = {
    status = 503,
    reason = "Service Unavailable",
    headers = {
        ["content-type"] = { [0] = "application/problem+json" },
        ["retry-after"] = { [0] = "1" },
    },
    body = '{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",'
        .. '"title":"Temporary Reduced Capacity","status":503,'
        .. '"detail":"requests cannot be counted at the moment; try again shortly"}',
}

-- HAProxy counts values from 0 when it tells and from 1 when it is told.
local function values(list)
    local copy = {}
    for index = 0, #list do
        copy[#copy + 1] = list[index]
    end
    return copy
end

-- The headers that ask about a request; nil if there are too many.
local function question(txn)
    local headers, lines = {}, 0
    for name, list in pairs(txn.http:req_get_headers()) do
        if not NOT_PASSED_ON[name] then
            headers[name] = values(list)
            lines = lines + #headers[name]
        end
    end
    if lines > MOST_LINES then
        return nil
    end
    local target = txn.sf:pathq()
    headers["x-original-uri"] = { target ~= "" and target or "*" }
    headers["x-original-method"] = { txn.sf:method() }
    headers["x-original-host"] = headers["host"]
    headers["x-forwarded-for"] = { txn.sf:src() }
    if TOKEN then
        headers["tollgate-token"] = { TOKEN }
    end
    return headers
end

local function relay(txn, answer)
    local reply = txn:reply({ status = answer.status, reason = answer.reason })
    for name, list in pairs(answer.headers) do
        if not NOT_RELAYED[name] then
            for _, value in ipairs(values(list)) do
                reply:add_header(name, value)
            end
        end
    end
    reply:set_body(answer.body or "")
    txn:done(reply)
end

core.register_action("tollgate", { "http-req" }, function(txn, without_answer)
    local headers = question(txn)
    if not headers then
        txn:set_var("txn.tollgate", "refused")
        return relay(txn, TOO_MANY_LINES)
    end
    local answer = core.httpclient():get({
        url = "http://tollgate/v1/auth/original",
        dst = ADDRESS,
        headers = headers,
    })
    local status = answer.status or 0
    -- HAProxy speaks for a server that does not; only Tollgate names its decision.
    local is_refusal = status >= 400 and (status < 500 or answer.headers["tollgate-decision"])
    if status >= 200 and status < 300 then
        txn:set_var("txn.tollgate", "admitted")
        txn:set_priv(answer.headers)
    elseif is_refusal then
        txn:set_var("txn.tollgate", "refused")
        relay(txn, answer)
    else
        txn:set_var("txn.tollgate", "absent")
        if without_answer ~= "open" then
            relay(txn, ABSENT)
        end
    end
end, 1)

core.register_action("tollgate_headers", { "http-res" }, function(txn)
    for name, list in pairs(txn:get_priv() or {}) do
        if name == "tollgate-decision" or name:find("ratelimit", 1, true) then
            txn.http:res_del_header(name)
            for _, value in ipairs(values(list)) do
                txn.http:res_add_header(name, value)
            end
        end
    end
end)
