//! The description of the Lab: the parameters and results of a simulation.

use serde_json::{Map, Value, json};
use tollgate_sim::simulate::Choice;
use tollgate_sim::traffic::{MAX_ATTEMPTS, Shape};

use super::operation;
use super::schemas::{count, object, schema};
use crate::lab::{MAX_CLIENTS, MAX_NODES, MAX_TEXT_BYTES};

/// Describes the path.
pub(super) fn paths() -> Map<String, Value> {
    let simulate = operation(
        "simulate",
        "Compares algorithms on generated traffic, in virtual time. Does not use the store and charges nothing",
        "SimulateRequest",
        "Simulated",
        &["400", "401", "403", "408", "413", "415", "422", "503"],
    );
    [("/v1/lab/simulate".to_owned(), json!({"post": simulate}))].into_iter().collect()
}

/// Describes the request and the response.
pub(super) fn schemas() -> Map<String, Value> {
    let all = [
        ("SimulateRequest", request()),
        ("Simulated", simulated()),
        ("SimulatedTraffic", traffic()),
        ("SimulatedAlgorithm", algorithm()),
        (
            "Disagreement",
            whole(json!({
                "requests": count(), "refused_by_log": count(), "too_lax": count(), "too_strict": count(),
            })),
        ),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// Describes an object whose members are all required.
#[allow(clippy::needless_pass_by_value, reason = "it is made for this and goes into it")]
fn whole(members: Value) -> Value {
    let required: Vec<_> = members.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    object(&required, members.clone())
}

fn number(description: &str) -> Value {
    json!({"type": "number", "minimum": 0, "description": description})
}

fn perhaps(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn algorithms() -> Vec<&'static str> {
    Choice::ALL.map(Choice::word).to_vec()
}

fn request() -> Value {
    let whole = |least: u64, most: Option<u64>, description: &str| {
        let mut schema = json!({"type": ["integer", "null"], "minimum": least, "description": description});
        if let (Some(most), Some(schema)) = (most, schema.as_object_mut()) {
            schema.insert("maximum".to_owned(), most.into());
        }
        schema
    };
    let word = |of: &[&str], description: &str| {
        let or_none: Vec<_> = of.iter().map(|&word| Value::from(word)).chain([Value::Null]).collect();
        json!({"enum": or_none, "description": description})
    };
    let flag = |description: &str| json!({"type": ["boolean", "null"], "description": description});
    let text = |description: &str| json!({"type": ["string", "null"], "maxLength": MAX_TEXT_BYTES, "description": description});
    let mut asked = object(
        &[],
        json!({
            "traffic": word(&Shape::ALL.map(Shape::word), "The shape; `edge` unless given."),
            "rate": text("As in a policy; `10/minute` by default."),
            "algorithms": {"type": ["array", "null"], "minItems": 1, "items": {"enum": algorithms()},
                           "description": "By default all that support the rate."},
            "burst": whole(1, None, "The burst of token-bucket and gcra."),
            "load": {"type": ["number", "null"], "minimum": 0.01, "maximum": 1000, "description": "A multiple of the rate."},
            "clients": whole(1, Some(MAX_CLIENTS.into()), "The number of clients."),
            "by": word(&["ip", "global"], "The key of the limit: each client, or all together."),
            "duration": text("The length of the simulation: `30s`, `10m`; ten windows by default."),
            "seed": whole(0, None, "Other numbers, other chances."),
            "jitter": flag("Whether clients that retry add jitter to their waits."),
            "honours_retry_after": flag("Whether they follow Retry-After."),
            "attempts": whole(1, Some(MAX_ATTEMPTS.into()), "The maximum number of attempts of a request."),
            "nodes": whole(1, Some(MAX_NODES.into()), "The number of nodes."),
            "store": word(&["memory", "shared"], "Whether each node counts for itself, or all share one store."),
            "routing": word(&["round-robin", "sticky"], "The routing of requests to nodes."),
        }),
    );
    asked["examples"] =
        json!([{"traffic": "edge", "rate": "10/minute", "algorithms": ["fixed-window", "sliding-log"]}]);
    asked
}

fn simulated() -> Value {
    whole(json!({
        "rate": {"type": "string"},
        "limit": count(),
        "window_s": number("The length of the rate's window."),
        "traffic": schema("SimulatedTraffic"),
        "algorithms": {"type": "array", "items": schema("SimulatedAlgorithm")},
        "notes": {"type": "array", "items": {"type": "string"}, "description": "What is omitted or inexact, and why."},
        "from_s": number("The start of the series, in virtual time: seconds since 1970."),
        "step_s": number("The length of a cell of the series."),
    }))
}

fn traffic() -> Value {
    let retry = whole(json!({
        "honours_retry_after": {"type": "boolean"}, "jitter": {"type": "boolean"}, "attempts": count(),
    }));
    whole(json!({
        "shape": {"enum": Shape::ALL.map(Shape::word)},
        "words": {"type": "string"},
        "load": number("A multiple of the rate."),
        "clients": count(),
        "by": {"enum": ["ip", "global"]},
        "duration_s": number("How long."),
        "retry": perhaps(&retry),
        "seed": count(),
        "nodes": count(),
        "store": {"enum": ["memory", "shared", "outage"]},
        "routing": {"enum": ["round-robin", "sticky"]},
        "until_s": number("Less than the duration if the number of attempts was limited."),
    }))
}

fn algorithm() -> Value {
    let share = || json!({"type": ["number", "null"], "minimum": 0, "maximum": 1});
    let counts = || json!({"type": "array", "items": count()});
    whole(json!({
        "algorithm": {"enum": algorithms()},
        "quota": {"type": "string", "description": "Its numbers."},
        "offered": count(), "admitted": count(), "refused": count(),
        "requests": count(), "retries": count(), "wasted_retries": count(), "given_up": count(),
        "most_in_a_window": {"type": "integer", "minimum": 0, "description": "The maximum that one key was admitted in any window of the rate's length."},
        "times_the_limit": number("That, as a multiple of the limit."),
        "most_at_s": {"type": ["number", "null"], "description": "When that window ended."},
        "longest_wait_told_s": number("The longest wait in a response."),
        "longest_wait_s": number("The longest time from a first attempt to an admission."),
        "least_served": share(), "most_served": share(),
        "closed_loop": perhaps(&schema("Disagreement")),
        "open_loop": perhaps(&schema("Disagreement")),
        "state_bytes": count(),
        "words": {"type": "string"},
        "series": whole(json!({"offered": counts(), "admitted": counts(), "window": counts()})),
    }))
}
