//! `lease` of a limit and of the store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate_core::Span;
use tollgate_policy::Policy;

/// Returns the lease of the only rule of a limit with these words, under this `store.lease`.
fn lease(store: &str, limit: &str) -> Option<Span> {
    let text = format!(
        "store: {{url: redis://10.0.0.5, lease: {store}}}\nlimits: [{{name: it, by: global, {limit}}}]"
    );
    Policy::parse(&text).unwrap_or_else(|problems| panic!("{problems}")).limits()[0].rules()[0].lease
}

#[test]
fn a_limit_takes_the_lease_of_its_store() {
    let millis = |number| Some(Span::from_millis(number));
    for (store, limit, expected) in [
        ("auto", "bucket: \"50_000/second, burst 200_000\"", millis(100)),
        ("auto", "bucket: 60_000/minute", millis(1_000)),
        ("auto", "bucket: 60_000/minute, lease: 2s", millis(2_000)),
        ("auto", "bucket: 60_000/minute, lease: off", None),
        ("off", "bucket: 60_000/minute", None),
        ("off", "bucket: 60_000/minute, lease: auto", millis(1_000)),
        ("50ms", "bucket: 1_000/second", millis(50)),
        ("500ms", "bucket: 1_000/second", millis(25)),
        ("auto", "bucket: 10/100ms", None),
        ("auto", "rate: 1000/hour, algorithm: fixed-window", millis(1_000)),
        ("auto", "rate: 1000/hour, algorithm: sliding-window", millis(1_000)),
        ("auto", "rate: 1000/hour, algorithm: sliding-window, parts: 7", None),
        ("auto", "rate: 1000/hour, algorithm: sliding-log", None),
        ("auto", "rate: 10/second, algorithm: leaky-queue, queue: {length: 5}", None),
        ("auto", "slots: 10", None),
        ("auto", "bucket: 60_000/minute, count_denied: true", None),
    ] {
        assert_eq!(lease(store, limit), expected, "{store}: {limit}");
    }
}

#[test]
fn a_lease_is_not_part_of_the_id() {
    let id = |lease: &str| {
        let text = format!("limits: [{{name: it, by: global, bucket: 60_000/minute, lease: {lease}}}]");
        Policy::parse(&text).unwrap().limits()[0].rules()[0].id
    };
    assert_eq!(id("auto"), id("off"));
}

#[test]
fn a_candidate_is_counted_by_the_store() {
    let text = "store: {url: redis://10.0.0.5, lease: auto}
limits: [{name: it, by: global, bucket: 60_000/minute, candidate: {bucket: 50_000/minute}}]";
    let policy = Policy::parse(text).unwrap();
    let leases: Vec<_> = policy.limits().iter().map(|it| it.rules()[0].lease.is_some()).collect();
    assert_eq!(leases, [true, false]);
}
