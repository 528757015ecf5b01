//! The shapes of what is asked and told.

use serde_json::{Value, json};

use crate::check::{MAX_BATCH_REQUESTS, MAX_METHOD_BYTES};
use crate::json::MAX_UNITS;

/// All of them.
pub(super) fn all() -> Value {
    json!({
        "CheckRequest": check_request(),
        "BatchRequest": object(&["requests"], json!({
            "requests": {"type": "array", "maxItems": MAX_BATCH_REQUESTS, "items": schema("CheckRequest")},
        })),
        "KeyRequest": object(&[], json!({"key": key(), "cost": optional(&cost()), "plan": text("The plan of the key.")})),
        "ResetRequest": object(&[], json!({"key": key(), "plan": text("The plan of the key.")})),
        "SettleRequest": object(&["id", "cost"], json!({"id": id(), "cost": cost()})),
        "ReleaseRequest": object(&["id"], json!({"id": id()})),
        "Decision": decision(),
        "BatchDecision": object(&["decisions"], json!({
            "decisions": {"type": "array", "maxItems": MAX_BATCH_REQUESTS, "items": schema("Decision")},
        })),
        "LimitOutcome": limit_outcome(),
        "Settled": object(&["id", "cost"], json!({"id": id(), "cost": cost()})),
        "Released": object(&["id", "slots"], json!({
            "id": id(), "slots": {"type": "integer", "minimum": 0, "description": "How many slots it had taken."},
        })),
        "Limits": object(&["limits"], json!({"limits": {"type": "array", "items": schema("Limit")}})),
        "Limit": limit(),
        "Readiness": object(
            &["ready", "draining", "policy_version", "policy_loaded_at", "reload_error", "store"],
            json!({
                "ready": {"type": "boolean"},
                "draining": {"type": "boolean", "description": "About to stop."},
                "policy_version": {"type": "integer", "minimum": 0, "description": "The number of the policy in force: files that were loaded, and switches."},
                "policy_loaded_at": {"type": ["string", "null"], "format": "date-time"},
                "reload_error": {"type": ["string", "null"], "description": "Why the last change of the policy was refused; only that it was, to whoever may not read."},
                "store": schema("StoreHealth"),
            }),
        ),
        "ThrottleRequest": throttle_request(),
        "Throttled": object(&["allowed", "limit", "remaining", "reset_after", "retry_after"], json!({
            "allowed": {"type": "boolean"},
            "limit": {"type": "integer", "minimum": 0, "description": "How many a rested key may spend at once: `max_burst`."},
            "remaining": {"type": "integer", "minimum": 0},
            "reset_after": {"type": "integer", "minimum": 0, "description": "Whole seconds, cut."},
            "retry_after": {"type": "integer", "minimum": 0, "description": "Whole seconds, cut; 0 for what is allowed."},
        })),
        "StoreHealth": store_health(),
        "Problem": problem(),
        "Refusal": refusal(),
    })
}

fn throttle_request() -> Value {
    let count = |description: &str| json!({"type": "integer", "minimum": 1, "maximum": MAX_UNITS, "description": description});
    json!({
        "type": "object",
        "required": ["key", "max_burst", "count_per_period", "period"],
        "properties": {
            "key": {"type": "string", "description": "Who spends."},
            "max_burst": count("How many a rested key may spend at once."),
            "count_per_period": count("How many come back in a period."),
            "period": count("Seconds."),
            "quantity": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_UNITS, "description": "How many are asked for: 1 if left out. Zero only looks."},
        },
    })
}

pub(super) fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[allow(clippy::needless_pass_by_value, reason = "it is made for this and goes into it")]
pub(super) fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// What may be left out may be `null` too: many languages write it so.
fn optional(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}

fn text(description: &str) -> Value {
    json!({"type": ["string", "null"], "description": description})
}

fn strings(description: &str) -> Value {
    let values = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]});
    json!({"type": ["object", "null"], "additionalProperties": values, "description": description})
}

fn cost() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MAX_UNITS, "description": "How many units. Zero only looks."})
}

fn id() -> Value {
    json!({"type": "string", "pattern": "^[0-9A-Fa-f]{16}$", "description": "The id of a decision."})
}

fn key() -> Value {
    json!({
        "description": "A string, or a list with a string for each part of the limit's `by`; nothing for `by: global`.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}],
    })
}

fn check_request() -> Value {
    let method = json!({
        "type": ["string", "null"], "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", "maxLength": MAX_METHOD_BYTES,
        "description": "GET unless given.",
    });
    object(
        &["path"],
        json!({
            "method": method,
            "path": {"type": "string", "pattern": "^/", "description": "With the query, if it has one."},
            "ip": {
                "description": "The client's address.",
                "anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}, {"type": "null"}],
            },
            "user": text("Who is logged in."),
            "api_key": text("The key that a program calls with."),
            "tenant": text("The customer."),
            "plan": text("The customer's plan."),
            "host": text("The host asked for."),
            "headers": strings("Headers that the policy looks at; a list for one that came in several lines."),
            "claims": strings("Verified claims of the caller's token."),
            "cost": optional(&cost()),
        }),
    )
}

pub(super) fn wait() -> Value {
    json!({"type": ["integer", "null"], "minimum": 0, "description": "In milliseconds, rounded up; null where waiting is not needed or does not help."})
}

fn decision() -> Value {
    object(
        &["allowed", "limit", "retry_after_ms", "degraded", "soft", "limits"],
        json!({
            "id": {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "To settle or release it. Absent where nothing was decided."},
            "allowed": {"type": "boolean"},
            "limit": {"type": ["string", "null"], "description": "The one that decided: of a refusal the one to wait for longest, else the one with least left."},
            "retry_after_ms": wait(),
            "degraded": {"type": "boolean", "description": "The store gave no answer; this is what the policy says then."},
            "soft": {"type": "array", "items": {"type": "string"}, "description": "The limits whose `soft` threshold is reached."},
            "reason": {"type": "string", "description": "What no number says: allow-listed, deny-listed, blocked, never, degraded."},
            "limits": {"type": "array", "items": schema("LimitOutcome")},
        }),
    )
}

pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn limit_outcome() -> Value {
    object(
        &[
            "name",
            "window",
            "key",
            "algorithm",
            "allowed",
            "mode",
            "limit",
            "remaining",
            "retry_after_ms",
            "reset_after_ms",
        ],
        json!({
            "name": {"type": "string", "description": "The limit's name, as in the policy and in paths."},
            "window": {"type": ["string", "null"], "description": "Which of its windows, such as `1s`; null where it has one only."},
            "key": {"type": "string", "description": "As the policy's `privacy` lets it be seen; API keys and cookies never whole."},
            "tag": super::operator::tag(),
            "algorithm": algorithm(),
            "allowed": {"type": "boolean"},
            "mode": mode(),
            "limit": count(),
            "remaining": count(),
            "retry_after_ms": wait(),
            "reset_after_ms": {"type": "integer", "minimum": 0, "description": "Until the key is as good as never seen."},
        }),
    )
}

pub(super) fn algorithm() -> Value {
    json!({"enum": ["token-bucket", "fixed-window", "sliding-window", "sliding-log", "concurrency"]})
}

pub(super) fn mode() -> Value {
    json!({"enum": ["enforce", "shadow", "off"]})
}

/// A list of texts.
pub(super) fn words() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

/// A time, as RFC 3339 has it.
pub(super) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn limit() -> Value {
    let words = words();
    object(
        &[
            "name",
            "endpoints",
            "except",
            "hosts",
            "methods",
            "descriptor",
            "domains",
            "by",
            "algorithm",
            "quotas",
            "ids",
            "mode",
            "policy_mode",
            "switched",
            "candidate_of",
            "soft",
            "missing",
            "cost",
            "settle",
            "count_denied",
            "on_outage",
            "plans",
            "plan_quotas",
        ],
        json!({
            "name": {"type": "string"},
            "endpoints": words,
            "except": {"type": "array", "items": {"type": "string"}, "description": "Paths of its endpoints that it does not cover."},
            "hosts": words,
            "methods": words,
            "descriptor": {"type": "array", "items": {"type": "string"}, "description": "The entries of the descriptors it covers, such as `plan=gold` and `user`; none of a limit on paths."},
            "domains": {"type": "array", "items": {"type": "string"}, "description": "Whose descriptors it covers; none: all."},
            "by": words,
            "algorithm": algorithm(),
            "quotas": {"type": "array", "items": {"type": "string"}, "description": "One for each window, in words."},
            "ids": {"type": "array", "items": {"type": "string"}, "description": "One for each window: under which a shared store files its keys."},
            "mode": mode(),
            "policy_mode": {"enum": ["enforce", "shadow", "off"], "description": "What the file says."},
            "switched": {"type": "boolean", "description": "Whether a switch is laid over what the file says."},
            "candidate_of": {"type": ["string", "null"], "description": "The limit that it is tried beside."},
            "soft": {"anyOf": [{"type": "null"}, object(&["at", "tarpit_ms"], json!({
                "at": {"type": "integer", "minimum": 1, "maximum": 100, "description": "In per cent."},
                "tarpit_ms": count(),
            }))]},
            "missing": {"enum": ["ip", "refuse", "shared", "skip"]},
            "cost": {"type": "string", "description": "What is taken when a request comes: units, the header that says how many (`header:x-cost`), or bytes of the body that cost one (`body:1KiB`)."},
            "settle": {"type": ["string", "null"], "description": "Where it is found what a request cost in the end: `response:x-tokens-used`, `json:usage.total_tokens`, `time:10ms`. Null: what was taken is final."},
            "count_denied": {"type": "boolean"},
            "on_outage": {"enum": ["local", "allow", "deny"]},
            "plans": words,
            "plan_quotas": {"type": "array", "description": "What each of these plans grants.", "items": object(&["plan", "grants", "quotas"], json!({
                "plan": {"type": "string"},
                "grants": {"enum": ["limited", "unlimited", "blocked"]},
                "quotas": {"type": "array", "items": {"type": "string"}, "description": "One for each window, in words; none where nothing is counted."},
            }))},
        }),
    )
}

fn store_health() -> Value {
    object(
        &["address", "state", "since", "error", "failures", "degraded_decisions", "ledger_keys"],
        json!({
            "address": {"type": ["string", "null"], "description": "Where it is, without a password; null for one in memory, and to whoever may not read."},
            "state": {"enum": ["ok", "degraded"], "description": "Degraded: it gave no answer when it was last asked, and limits do as their `on_outage` says. Requests may be sent here all the same."},
            "since": {"type": ["string", "null"], "format": "date-time", "description": "Since when it gives no answers."},
            "error": {"type": ["string", "null"], "description": "Why it last gave no answer; only that it gave none, to whoever may not read."},
            "failures": {"type": "integer", "minimum": 0, "description": "Questions that it gave no answer to."},
            "degraded_decisions": {"type": "integer", "minimum": 0, "description": "Decisions without it."},
            "ledger_keys": {"type": "integer", "minimum": 0, "description": "Keys to be charged when it is back."},
        }),
    )
}

fn problem_members() -> Value {
    json!({
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "What to change."},
    })
}

fn problem() -> Value {
    let mut members = problem_members();
    members["error"] = json!({"type": "string", "description": "Of `/throttle`: the detail once more, where throttlecrab's clients look."});
    object(&["type", "title", "status", "detail"], members)
}

fn refusal() -> Value {
    let mut members = problem_members();
    members["instance"] =
        json!({"type": "string", "format": "uri-reference", "description": "The decision."});
    members["violated-policies"] = json!({"type": "array", "items": {"type": "string"}});
    members["retry_after"] = json!({"type": "integer", "minimum": 1});
    members["retry_after_ms"] = json!({"type": "integer", "minimum": 1});
    members["degraded"] = json!({"const": true, "description": "The store gave no answer."});
    object(&["type", "title", "status", "detail"], members)
}
