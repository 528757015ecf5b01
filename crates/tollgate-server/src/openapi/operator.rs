//! The description of the operator API: overview, explanations, modes and the files of the dashboard.

use serde_json::{Map, Value, json};

use super::schemas::{algorithm, count, mode, object, schema, time, wait, words};
use super::{json_of, operation, reference};
use crate::decisions::MAX_DECISIONS;
use crate::json::MAX_UNITS;
use crate::mode_overrides::{MAX_NAME_CHARS, MAX_REASON_CHARS};
use crate::stats::{MAX_SERIES_LIMITS, MAX_TOP};

/// Describes the paths.
pub(super) fn paths() -> Map<String, Value> {
    let number = |name: &str, least: u64, most: u64, description: &str| {
        json!({"name": name, "in": "query", "description": description,
               "schema": {"type": "integer", "minimum": least, "maximum": most}})
    };
    let limit = json!({
        "name": "limit", "in": "query", "description": "Adds the series of these limits.",
        "schema": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_SERIES_LIMITS},
        "explode": true,
    });
    let refused = json!({"name": "refused", "in": "query", "description": "Only refusals.", "schema": {"type": "boolean"}});
    let id = json!({"name": "id", "in": "path", "required": true, "description": "The id of a decision, from `Tollgate-Decision`.",
                    "schema": {"type": "string", "pattern": "^[0-9A-Fa-f]{16}$"}});
    let file = json!({"name": "name", "in": "path", "required": true, "description": "A file of the dashboard.",
                      "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}});
    let of_switch = ["400", "401", "403", "404", "408", "413", "415", "422", "503"];
    let mut of_everything = look("modes", "The modes and overrides of limits", "Modes", &[], &[]);
    of_everything["put"] = operation(
        "switchEverything",
        "Changes the mode of everything: `enforce` leaves each limit unchanged",
        "SwitchRequest",
        "Switched",
        &of_switch,
    );
    let mut of_limit = super::named_parameters();
    of_limit["put"] = operation(
        "switchLimit",
        "Changes the mode of one limit; `policy` removes the override",
        "SwitchLimitRequest",
        "SwitchedLimit",
        &of_switch,
    );
    let of_explain = ["400", "401", "403", "408", "409", "413", "415", "422", "503"];
    [
        ("/page/{name}", page(&file)),
        ("/v1/overview", look("overview", "The health of the server", "Overview", &[], &[])),
        ("/v1/stats", look("stats", "The counts of each limit in the last five minutes", "Stats", &[limit], &["409", "422"])),
        (
            "/v1/top",
            look(
                "top", "The keys refused most and the routes requested most in the last five minutes", "Top",
                &[number("most", 1, MAX_TOP, "How many; 20 unless given.")], &["409"],
            ),
        ),
        (
            "/v1/decisions",
            look(
                "decisions", "Recent decisions, the newest last: refusals and a sample of admitted requests", "Decisions",
                &[
                    number("after", 0, MAX_UNITS, "Returns later decisions only: `next` of the last response."),
                    number("most", 1, MAX_DECISIONS, "How many; 100 unless given."),
                    refused,
                ],
                &["409"],
            ),
        ),
        ("/v1/decisions/{id}", look("explainDecision", "Explains a past decision", "Explanation", &[id], &["404", "409", "422"])),
        (
            "/v1/explain",
            json!({"post": operation(
                "explain", "Explains the decision that a request would get now. Charges nothing", "CheckRequest", "Explanation", &of_explain
            )}),
        ),
        ("/v1/policy", look("policy", "The policy as parsed, without its limits", "Policy", &[], &[])),
        ("/v1/mode", of_everything),
        ("/v1/limits/{name}/mode", of_limit),
        ("/v1/changes", look("changes", "The recorded changes of modes, the newest first", "Changes", &[], &[])),
    ]
    .into_iter()
    .map(|(path, item)| (path.to_owned(), item))
    .collect()
}

/// Describes a read with parameters.
fn look(id: &str, summary: &str, told: &str, parameters: &[Value], problems: &[&str]) -> Value {
    let operation = |id: String, content: Option<Value>| {
        let mut ok = json!({"description": "The answer."});
        if let Some(content) = content {
            ok["content"] = content;
        }
        let mut responses = Map::new();
        responses.insert("200".into(), ok);
        let problems = ["400", "401", "403"].iter().chain(problems);
        responses.extend(problems.map(|status| ((*status).to_owned(), reference(status))));
        json!({"operationId": id, "summary": summary, "responses": responses})
    };
    json!({
        "parameters": parameters,
        "get": operation(id.to_owned(), Some(json_of(told))),
        "head": operation(format!("{id}Head"), None),
    })
}

/// Describes a file of the dashboard, which needs no token and contains no data.
fn page(parameter: &Value) -> Value {
    let kinds = [
        "text/html",
        "text/css",
        "text/javascript",
        "image/svg+xml",
        "image/png",
        "image/x-icon",
        "application/json",
        "application/octet-stream",
    ];
    let content: Map<String, Value> = kinds.iter().map(|kind| ((*kind).to_owned(), json!({}))).collect();
    let operation = |id: &str, content: Value| {
        json!({
            "operationId": id, "summary": "A file of the page", "security": [{}],
            "responses": {
                "200": content, "304": {"description": "Not modified, by `If-None-Match`."},
                "403": reference("403"), "404": reference("404"),
            },
        })
    };
    json!({
        "parameters": [parameter],
        "get": operation("page", json!({"description": "The file.", "content": content})),
        "head": operation("pageHead", json!({"description": "The file."})),
    })
}

/// Describes the requests and responses.
pub(super) fn schemas() -> Map<String, Value> {
    let mut schemas = switches();
    schemas.extend(overview());
    schemas.extend(stats());
    schemas.extend(explanation());
    schemas.insert("Policy".into(), policy());
    schemas
}

fn named(schemas: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// Describes an object whose members are all required.
#[allow(clippy::needless_pass_by_value, reason = "it is made for this and goes into it")]
fn whole(members: Value) -> Value {
    let required: Vec<_> = members.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    object(&required, members.clone())
}

fn list(of: &str) -> Value {
    json!({"type": "array", "items": schema(of)})
}

fn counts() -> Value {
    json!({"type": "array", "items": count()})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn perhaps(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
        schema
    } else {
        json!({"anyOf": [schema, {"type": "null"}]})
    }
}

fn share() -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 1})
}

fn switches() -> Map<String, Value> {
    let asked = |modes: Value| {
        let mut asked = object(
            &["mode"],
            json!({
                "mode": {"enum": modes},
                "reason": {"type": ["string", "null"], "maxLength": MAX_REASON_CHARS, "description": "Why."},
                "by": {"type": ["string", "null"], "maxLength": MAX_NAME_CHARS, "description": "Who."},
            }),
        );
        asked["examples"] = json!([{"mode": "shadow", "reason": "launch day", "by": "ann"}]);
        asked
    };
    named([
        ("SwitchRequest", asked(json!(["enforce", "shadow", "off"]))),
        ("SwitchLimitRequest", asked(json!(["enforce", "shadow", "off", "policy"]))),
    ])
}

fn overview() -> Map<String, Value> {
    named([
        (
            "Overview",
            whole(json!({
                "now": time(), "started_at": time(), "version": text("Of Tollgate."),
                "role": {"enum": ["admin", "reader"], "description": "The role of the caller."},
                "observing": flag("False with `observe: off`: then nothing below is counted."),
                "policy": schema("PolicyInForce"), "mode": mode(), "store": schema("StoreInFull"),
                "totals": schema("Totals"), "window": schema("Window"), "series": schema("Series"),
                "latency_us": perhaps(schema("Latency")), "alerts": list("Alert"),
                "at_zero_for_s": perhaps(json!({"type": "integer", "minimum": 0, "description": "The seconds after which an exhausted key is in `alerts`."})),
                "tarpit": whole(json!({"waiting": count(), "most": count()})),
                "log": whole(json!({"suppressed": count()})),
            })),
        ),
        (
            "PolicyInForce",
            whole(json!({
                "version": count(), "loaded_at": perhaps(time()), "reload_error": perhaps(text("The error of the last reload.")),
                "limits": count(), "switched": count(), "privacy": privacy(),
            })),
        ),
        (
            "StoreInFull",
            whole(json!({
                "kind": {"enum": ["memory", "redis"]}, "address": perhaps(text("Without a password.")),
                "state": {"enum": ["ok", "degraded"]}, "breaker": {"enum": ["closed", "open", "half-open"]},
                "since": perhaps(time()), "error": perhaps(text("The last error.")), "failures": count(),
                "degraded_decisions": count(), "nodes": count(), "ledger_keys": count(),
                "keys": perhaps(count()), "evictions": perhaps(count()),
                "outages": {"type": "array", "maxItems": 20, "items": whole(json!({"from": time(), "to": perhaps(time())}))},
            })),
        ),
        (
            "Totals",
            whole(json!({
                "allowed": count(), "unlimited": count(), "limited": count(), "blocked": count(),
                "uncountable": count(), "shadow_limited": count(), "degraded": count(),
            })),
        ),
        (
            "Window",
            whole(json!({
                "from": first_second(), "until": {"type": "integer", "description": "The current second, since 1970, which is included."},
                "allowed": count(), "refused": count(), "shadow_limited": count(), "degraded": count(),
            })),
        ),
        (
            "Series",
            whole(json!({
                "step_s": count(), "until": {"type": "integer", "description": "The second of the last element, since 1970, which is still in progress."},
                "allowed": counts(), "refused": counts(), "shadow_limited": counts(), "degraded": counts(),
            })),
        ),
        ("Latency", whole(json!({"p50": count(), "p90": count(), "p99": count()}))),
        (
            "Alert",
            whole(json!({
                "limit": text("The limit."), "key": key_shown(), "tag": tag(), "since": time(), "for_s": count(), "refused": count(),
            })),
        ),
    ])
}

fn key_shown() -> Value {
    text("As the policy's `privacy` shows it.")
}

fn tag() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "A keyed hash of the hidden part of the key: the same for one caller under every limit."})
}

fn first_second() -> Value {
    json!({"type": "integer", "description": "The first second of the last five minutes, since 1970: the same for all counts."})
}

fn privacy() -> Value {
    json!({"enum": ["plain", "hashed", "truncated"]})
}

fn stats() -> Map<String, Value> {
    named([
        (
            "Stats",
            whole(
                json!({"window_s": count(), "from": first_second(), "step_s": count(), "until": count(), "limits": list("LimitStats")}),
            ),
        ),
        (
            "LimitStats",
            whole(json!({
                "name": text("The limit."), "mode": mode(), "policy_mode": mode(), "candidate_of": perhaps(text("The live limit of this candidate.")),
                "counted": flag("Whether the limit is counted separately, which holds for up to 2,000 limits. The following members are null otherwise."),
                "allowed": perhaps(count()), "limited": perhaps(count()), "shadow_limited": perhaps(count()), "blocked": perhaps(count()),
                "exhausted": perhaps(count()), "soft": perhaps(count()), "degraded": perhaps(count()),
                "remaining_min": perhaps(share()),
                "total": perhaps(whole(json!({"allowed": count(), "limited": count(), "shadow_limited": count()}))),
                "agreement": perhaps(schema("Agreement")), "series": perhaps(schema("LimitSeries")),
            })),
        ),
        (
            "Agreement",
            whole(json!({
                "since": perhaps(json!({"type": "string", "format": "date-time", "description": "The time since which both limits have their current rules; null before the first decision."})),
                "both_allow": count(), "only_candidate_allows": count(), "only_live_allows": count(), "both_refuse": count(),
            })),
        ),
        (
            "LimitSeries",
            whole(json!({
                "allowed": counts(), "limited": counts(), "remaining": {"type": "array", "items": perhaps(share())},
            })),
        ),
        (
            "Top",
            whole(json!({
                "window_s": count(), "from": first_second(), "keys": list("TopKey"), "routes": list("HotRoute"),
                "error_at_most": {"type": "integer", "description": "The most by which `refused` of a key may be too high."},
                "routes_error_at_most": {"type": "integer", "description": "The most by which `requests` of a route may be too high."},
            })),
        ),
        (
            "TopKey",
            whole(json!({
                "limit": text("The limit."), "key": key_shown(), "tag": tag(), "refused": count(), "refused_at_least": count(), "share": share(),
            })),
        ),
        (
            "HotRoute",
            whole(
                json!({"method": text("The method."), "path": text("Truncated."), "requests": count(), "requests_at_least": count(), "refused": count()}),
            ),
        ),
    ])
}

fn fate() -> Value {
    json!({"enum": ["admitted", "refused", "allow_listed", "deny_listed", "ambiguous_path", "blocked", "uncountable"]})
}

fn explanation() -> Map<String, Value> {
    let id = json!({"type": "string", "pattern": "^[0-9a-f]{16}$"});
    let limit = || perhaps(text("The limiting limit."));
    named([
        (
            "Decisions",
            whole(json!({
                "next": {"type": "integer", "minimum": 0, "description": "The value of `after` for the next request."},
                "missed": {"type": "integer", "minimum": 0, "description": "The number of decisions that were evicted in between."},
                "decisions": {"type": "array", "maxItems": MAX_DECISIONS, "items": schema("DecisionLine")},
            })),
        ),
        (
            "DecisionLine",
            whole(json!({
                "seq": count(), "id": id, "at": time(), "allowed": flag("Whether the request was admitted."), "fate": fate(),
                "method": text("Empty if the check named a limit and a key."), "path": text("Without the query."),
                "client": perhaps(text("As `privacy` shows it.")), "limit": limit(),
                "key": perhaps(key_shown()), "tag": perhaps(tag()), "retry_after_ms": wait(), "degraded": flag("Decided without the store."), "took_us": count(),
            })),
        ),
        (
            "Explanation",
            whole(json!({
                "id": perhaps(id), "hypothetical": flag("Whether the request is hypothetical and was not charged."), "at": time(),
                "allowed": flag("Whether the request was admitted."), "fate": fate(), "summary": text("The decision in one sentence."),
                "reason": perhaps(text("The reason, if the numbers do not explain the decision.")), "limit": limit(),
                "retry_after_ms": wait(), "policy_version": count(), "policy_is_current": flag("Whether that policy is still in force."),
                "degraded": flag("Decided without the store."), "took_us": count(),
                "request": whole(json!({
                    "method": text("The method."), "path": text("Without the query."), "host": perhaps(text("The host.")),
                    "client": perhaps(text("As `privacy` shows it.")),
                })),
                "limits": list("ExplainedLimit"),
                "trace_id": perhaps(json!({"type": "string", "pattern": "^[0-9a-f]{32}$"})),
            })),
        ),
        (
            "ExplainedLimit",
            whole(json!({
                "name": text("The limit."), "window": perhaps(text("The name of the window.")), "key": key_shown(), "tag": perhaps(tag()),
                "algorithm": algorithm(), "quota": text("The quota in words."),
                "granted_by": perhaps(text("The plan or override that set the quota; `call` if the call set it; null for the limit's own.")), "mode": mode(),
                "candidate": flag("Whether the limit is a candidate."), "decided": flag("Whether it is the limiting limit."),
                "allowed": flag("Whether it had room."), "cost": count(), "limit": count(), "remaining": count(),
                "retry_after_ms": wait(), "reset_after_ms": count(),
                "arithmetic": words(), "spenders": list("Spender"),
            })),
        ),
        (
            "Spender",
            whole(json!({
                "client": perhaps(text("As `privacy` shows it.")), "method": text("The method."), "path": text("Without the query."),
                "units": count(), "last_at": time(),
            })),
        ),
    ])
}

fn policy() -> Value {
    let bits = |most: u8| json!({"type": "integer", "minimum": 0, "maximum": most});
    whole(json!({
        "version": count(), "loaded_at": perhaps(time()), "limits": count(), "allow": count(), "deny": count(),
        "client": whole(json!({
            "trusted_proxies": words(), "header": {"enum": ["x-forwarded-for", "forwarded", "none"]},
            "ipv4_prefix": bits(32), "ipv6_prefix": bits(128),
        })),
        "identify": whole(json!({
            "user": words(), "api_key": words(), "tenant": words(), "ambiguous": {"enum": ["address", "refuse"]},
        })),
        "headers": whole(json!({
            "x_ratelimit": {"enum": ["epoch", "delta", "off"]}, "ietf": {"enum": ["draft-11", "draft-6", "off"]},
            "retry_after_jitter": count(), "dialects": words(), "describe": words(),
        })),
        "privacy": privacy(), "max_keys": count(),
    }))
}
