//! The Lab: what is asked of a simulation, and what it tells.

use serde_json::{Map, Value, json};
use tollgate_sim::simulate::Choice;
use tollgate_sim::traffic::{MAX_ATTEMPTS, Shape};

use super::operation;
use super::schemas::{count, object, schema};
use crate::lab::{MAX_CLIENTS, MAX_NODES, MAX_TEXT_BYTES};

/// Its path.
pub(super) fn paths() -> Map<String, Value> {
    let simulate = operation(
        "simulate",
        "Algorithms side by side on traffic of a shape, in virtual time. Asks no store and charges nothing",
        "SimulateRequest",
        "Simulated",
        &["400", "401", "403", "408", "413", "415", "422", "503"],
    );
    [("/v1/lab/simulate".to_owned(), json!({"post": simulate}))].into_iter().collect()
}

/// The shapes of what is asked and told.
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

/// An object all of whose members are always there.
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
            "rate": text("As in a policy; `10/minute` unless given."),
            "algorithms": {"type": ["array", "null"], "minItems": 1, "items": {"enum": algorithms()},
                           "description": "All that take the rate, unless given."},
            "burst": whole(1, None, "How many at once, for token-bucket and gcra."),
            "load": {"type": ["number", "null"], "minimum": 0.01, "maximum": 1000, "description": "A multiple of the rate."},
            "clients": whole(1, Some(MAX_CLIENTS.into()), "How many clients."),
            "by": word(&["ip", "global"], "Whom the limit counts: each client, or all together."),
            "duration": text("How long: `30s`, `10m`; ten windows unless given."),
            "seed": whole(0, None, "Other numbers, other chances."),
            "jitter": flag("Whether clients that come back add chance to their waits."),
            "honours_retry_after": flag("Whether they wait as long as they are told."),
            "attempts": whole(1, Some(MAX_ATTEMPTS.into()), "How often a request is tried in all."),
            "nodes": whole(1, Some(MAX_NODES.into()), "How many nodes decide."),
            "store": word(&["memory", "shared"], "Whether each node counts for itself, or all in one place."),
            "routing": word(&["round-robin", "sticky"], "Which node a request goes to."),
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
        "window_s": number("How long a window of the rate is."),
        "traffic": schema("SimulatedTraffic"),
        "algorithms": {"type": "array", "items": schema("SimulatedAlgorithm")},
        "notes": {"type": "array", "items": {"type": "string"}, "description": "What is left out, or not exact, and why."},
        "from_s": number("When the series begin, in virtual time: seconds since 1970."),
        "step_s": number("How long each of their cells is."),
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
        "until_s": number("Less than the duration where there were more tries than are worked through."),
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
        "most_in_a_window": {"type": "integer", "minimum": 0, "description": "The most that one key was let through in any window of the rate's length."},
        "times_the_limit": number("That, as a multiple of the limit."),
        "most_at_s": {"type": ["number", "null"], "description": "When that window ended."},
        "longest_wait_told_s": number("The longest wait that anybody was told."),
        "longest_wait_s": number("The longest from a first try to an admission."),
        "least_served": share(), "most_served": share(),
        "closed_loop": perhaps(&schema("Disagreement")),
        "open_loop": perhaps(&schema("Disagreement")),
        "state_bytes": count(),
        "words": {"type": "string"},
        "series": whole(json!({"offered": counts(), "admitted": counts(), "window": counts()})),
    }))
}
