//! The schemas of requests and responses.

use serde_json::{Value, json};

use crate::check::{MAX_BATCH_REQUESTS, MAX_METHOD_BYTES};
use crate::json::MAX_UNITS;

/// Returns all schemas.
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
        "BatchDecision": object(&["decisions"], json!({
            "decisions": {"type": "array", "maxItems": MAX_BATCH_REQUESTS, "items": schema("Decision")},
        })),
        "Settled": object(&["id", "cost"], json!({"id": id(), "cost": cost()})),
        "Released": object(&["id", "slots"], json!({
            "id": id(), "slots": {"type": "integer", "minimum": 0, "description": "The number of released slots."},
        })),
        "Limits": object(&["limits"], json!({"limits": {"type": "array", "items": schema("Limit")}})),
        "Limit": limit(),
        "Readiness": object(
            &["ready", "draining", "policy_version", "policy_loaded_at", "reload_error", "store"],
            json!({
                "ready": {"type": "boolean"},
                "draining": {"type": "boolean", "description": "Whether the server is about to stop."},
                "policy_version": {"type": "integer", "minimum": 0, "description": "The version of the policy in force, which counts loaded files and mode changes."},
                "policy_loaded_at": {"type": ["string", "null"], "format": "date-time"},
                "reload_error": {"type": ["string", "null"], "description": "The error of the last reload; without the reader role, only whether there is one."},
                "store": schema("StoreHealth"),
            }),
        ),
        "ThrottleRequest": throttle_request(),
        "Throttled": object(&["allowed", "limit", "remaining", "reset_after", "retry_after"], json!({
            "allowed": {"type": "boolean"},
            "limit": {"type": "integer", "minimum": 0, "description": "The amount that an idle key may spend at once: `max_burst`."},
            "remaining": {"type": "integer", "minimum": 0},
            "reset_after": {"type": "integer", "minimum": 0, "description": "Whole seconds, cut."},
            "retry_after": {"type": "integer", "minimum": 0, "description": "Seconds, truncated; 0 if allowed."},
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
            "max_burst": count("The amount that an idle key may spend at once."),
            "count_per_period": count("The units that are refilled in a period."),
            "period": count("Seconds."),
            "quantity": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_UNITS, "description": "The requested units, 1 by default. Zero only reads."},
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

/// An optional member may also be `null`, which many languages write.
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
    json!({"type": "integer", "minimum": 0, "maximum": MAX_UNITS, "description": "The number of units. Zero only reads."})
}

fn id() -> Value {
    json!({"type": "string", "pattern": "^[0-9A-Fa-f]{16}$", "description": "The id of a decision."})
}

fn key() -> Value {
    json!({
        "description": "A string, or a list with a string for each part of the limit's `by`; absent for `by: global`.",
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
            "path": {"type": "string", "pattern": "^/", "description": "The path, with the query if there is one."},
            "ip": {
                "description": "The client's address.",
                "anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}, {"type": "null"}],
            },
            "user": text("The user that is logged in."),
            "api_key": text("The API key of the program."),
            "tenant": text("The customer."),
            "plan": text("The customer's plan."),
            "host": text("The requested host."),
            "headers": strings("Headers that the policy reads; a list for a header with several lines."),
            "claims": strings("Verified claims of the caller's token."),
            "cost": optional(&cost()),
        }),
    )
}

pub(super) fn wait() -> Value {
    json!({"type": ["integer", "null"], "minimum": 0, "description": "In milliseconds, rounded up; null if waiting is not needed or does not help."})
}

pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(super) fn algorithm() -> Value {
    json!({"enum": ["token-bucket", "fixed-window", "sliding-window", "sliding-log", "concurrency", "leaky-queue"]})
}

pub(super) fn mode() -> Value {
    json!({"enum": ["enforce", "shadow", "off"]})
}

/// A list of strings.
pub(super) fn words() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

/// A time in RFC 3339.
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
            "except": {"type": "array", "items": {"type": "string"}, "description": "Paths of its endpoints that the limit does not cover."},
            "hosts": words,
            "methods": words,
            "descriptor": {"type": "array", "items": {"type": "string"}, "description": "The entries of the descriptors that it covers, such as `plan=gold` and `user`; empty for a limit on paths."},
            "domains": {"type": "array", "items": {"type": "string"}, "description": "The domains whose descriptors it covers; empty for all."},
            "by": words,
            "algorithm": algorithm(),
            "quotas": {"type": "array", "items": {"type": "string"}, "description": "One for each window, in words."},
            "ids": {"type": "array", "items": {"type": "string"}, "description": "The rule id of each window, which prefixes its keys in a shared store."},
            "mode": mode(),
            "policy_mode": {"enum": ["enforce", "shadow", "off"], "description": "The mode in the policy file."},
            "switched": {"type": "boolean", "description": "Whether an override is in force."},
            "candidate_of": {"type": ["string", "null"], "description": "The live limit of this candidate."},
            "soft": {"anyOf": [{"type": "null"}, object(&["at", "tarpit_ms"], json!({
                "at": {"type": "integer", "minimum": 1, "maximum": 100, "description": "In percent."},
                "tarpit_ms": count(),
            }))]},
            "missing": {"enum": ["ip", "refuse", "shared", "skip"]},
            "cost": {"type": "string", "description": "The charge of a request: units, the header with the number (`header:x-cost`), or the bytes of the body per unit (`body:1KiB`)."},
            "settle": {"type": ["string", "null"], "description": "The source of the final cost: `response:x-tokens-used`, `json:usage.total_tokens`, `time:10ms`. Null if the charge is final."},
            "count_denied": {"type": "boolean"},
            "on_outage": {"enum": ["local", "allow", "deny"]},
            "plans": words,
            "plan_quotas": {"type": "array", "description": "The quotas of these plans.", "items": object(&["plan", "grants", "quotas"], json!({
                "plan": {"type": "string"},
                "grants": {"enum": ["limited", "unlimited", "blocked"]},
                "quotas": {"type": "array", "items": {"type": "string"}, "description": "One description for each window; empty if the plan is not counted."},
            }))},
        }),
    )
}

fn store_health() -> Value {
    object(
        &["address", "state", "since", "error", "failures", "degraded_decisions", "ledger_keys"],
        json!({
            "address": {"type": ["string", "null"], "description": "The address without a password; null for memory, and without the reader role."},
            "state": {"enum": ["ok", "degraded"], "description": "Degraded if the last call failed, and limits follow their `on_outage`. The node still accepts requests."},
            "since": {"type": ["string", "null"], "format": "date-time", "description": "The start of the outage."},
            "error": {"type": ["string", "null"], "description": "The last error; without the reader role, only whether there is one."},
            "failures": {"type": "integer", "minimum": 0, "description": "The number of failed calls."},
            "degraded_decisions": {"type": "integer", "minimum": 0, "description": "The number of degraded decisions."},
            "ledger_keys": {"type": "integer", "minimum": 0, "description": "The number of keys with outstanding charges."},
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
    members["error"] = json!({"type": "string", "description": "For `/throttle`: the detail again, for throttlecrab's clients."});
    object(&["type", "title", "status", "detail"], members)
}

fn refusal() -> Value {
    let mut members = problem_members();
    members["instance"] =
        json!({"type": "string", "format": "uri-reference", "description": "The decision."});
    members["violated-policies"] = json!({"type": "array", "items": {"type": "string"}});
    members["retry_after"] = json!({"type": "integer", "minimum": 1});
    members["retry_after_ms"] = json!({"type": "integer", "minimum": 1});
    members["degraded"] = json!({"const": true, "description": "The store did not answer."});
    object(&["type", "title", "status", "detail"], members)
}
