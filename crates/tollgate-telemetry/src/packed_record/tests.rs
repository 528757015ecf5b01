//! Checks that a packed decision reads as its description.

use std::hash::RandomState;
use std::sync::{Arc, Mutex};

use tollgate::policy::Descriptor;
use tollgate::{Call, Event, Input, Limiter, NotHeld, Observer, Policy, Watch};

use super::*;
use crate::redact::PathRedactor;

/// An observer that packs, unpacks and describes each decision. It notes the two texts; the first is empty if the
/// decision was not packed.
#[derive(Clone, Default)]
struct Comparison {
    not_held: Option<NotHeld>,
    noted: Arc<Mutex<Vec<(String, String)>>>,
}

struct ComparingWatch {
    policy: Arc<Policy>,
    secret: RandomState,
    redactor: Option<PathRedactor>,
    comparison: Comparison,
}

impl Observer for Comparison {
    fn watch(&self, policy: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
        Arc::new(ComparingWatch {
            policy: Arc::clone(policy),
            secret: RandomState::new(),
            redactor: PathRedactor::of(policy),
            comparison: self.clone(),
        })
    }
}

impl Watch for ComparingWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        let Self { policy, secret, redactor, comparison } = self;
        // The duration is compared, so it is read once.
        let event = &event.with_duration();
        let describer = Describer { policy, version: 7, secret, redactor: redactor.as_ref() };
        let key_hash = |it: &LimitOutcome<'_>| it.policy_rule().id.0;
        let described = describer.describe(event.subject, event.decision, event.at, key_hash);
        let mut described = Record { id: event.id, took: event.took().into(), ..described };
        if let Some(not_held) = comparison.not_held {
            described.reason = Some(describe::not_held(not_held).into());
        }
        let path = event.subject.map_or("".into(), |it| describe::path_of(it, redactor.as_ref()));
        let limiting = event.decision.limiting();
        let mut packed = PackedRecord::new();
        let is_packed =
            pack(&mut packed, &describer, event, limiting, comparison.not_held, &path, |_, it, then| {
                let key = ShownKey::new(&mut String::new(), |out| describer.show_key(it, out));
                then(&key, key_hash(it));
            });
        let unpacked = is_packed.and_then(|()| packed.as_bytes()).map(|bytes| {
            let unredacted = Describer { redactor: None, ..describer };
            unpack(bytes, &unredacted).expect("the bytes were packed")
        });
        let unpacked = unpacked.map_or(String::new(), |record| format!("{record:?}"));
        comparison.noted.lock().unwrap().push((unpacked, format!("{described:?}")));
    }
}

/// Returns what the observer noted about some requests.
fn compare<I: Input>(policy: &str, not_held: Option<NotHeld>, inputs: &[I]) -> Vec<(String, String)> {
    let comparison = Comparison { not_held, ..Comparison::default() };
    let policy = Policy::parse(policy).unwrap_or_else(|wrong| panic!("{}", wrong.render("policy")));
    let limiter = Limiter::new(policy).with_observer(comparison.clone());
    for input in inputs {
        let _decision = limiter.check(input);
    }
    let noted = comparison.noted.lock().unwrap();
    noted.clone()
}

#[track_caller]
fn check<I: Input>(policy: &str, not_held: Option<NotHeld>, inputs: &[I]) {
    let compared = compare(policy, not_held, inputs);
    assert_eq!(compared.len(), inputs.len());
    for (unpacked, described) in compared {
        assert_eq!(unpacked, described, "{policy}");
    }
}

fn call<'c>() -> Call<'c> {
    Call::new("GET", "/a/b?secret=1").ip([203, 0, 113, 9]).user("ann").host("example.com")
}

#[test]
fn a_packed_decision_reads_as_its_description() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let untraced = trace.replace("-01", "-00");
    let long = format!("/{}", "é".repeat(200));
    let calls = [
        call(),
        call(),
        call().header("traceparent", trace),
        call().header("traceparent", &untraced).user("bob"),
        Call::new("PURGE-ALL-OF-THE-CACHES-AND-MORE-OF-THEM", &long)
            .user("ann")
            .ip([0xfe80, 0, 0, 0, 0, 0, 0, 1]),
        Call::new("GET", "/").user("ann"),
        call().user("ann").plan("pro"),
        call().user("ann").plan("free"),
        call().user("ann").cost(1_000),
        Call::new("GET", "/a;b/../c").user("ann"),
        Call::new("GET", "/").ip([192, 0, 2, 1]),
        Call::new("GET", "/").ip([192, 0, 2, 2]),
        call().user("\u{202e}<b>\n").api_key("sk-live-51HzQ"),
    ];
    for privacy in ["plain", "hashed", "truncated"] {
        for limits in [
            "[{name: api, by: user, bucket: 1/day}]",
            "[{by: ip, windows: [2/s, 3/day], missing: skip}, {by: [user, api_key], bucket: 100/day, missing: shared}]",
            "[{by: user, bucket: 2/day, plans: {pro: 3/day, free: 1/day}, overrides: {bob: 1/hour}}]",
            "[{by: user, bucket: 2/day, plans: {pro: unlimited, free: blocked}, overrides: {bob: blocked}}]",
            "[{by: user, bucket: 1/day, mode: shadow}, {by: api_key, bucket: 1/day, missing: refuse, mode: shadow}]",
            "[{by: api_key, bucket: 1/day, missing: refuse}]",
            "[{by: user, bucket: 2/day, candidate: {bucket: 1/day}}]",
            "[{by: user, slots: 1}, {by: global, bucket: 5/s, count_denied: true}]",
            "[{by: 'path:name', endpoint: '/a/{name}', bucket: 1/day}, {by: 'header:Host', bucket: 2/day, missing: skip}]",
            "[{by: user, bucket: 1/day, mode: off}]",
            "[{by: user, algorithm: leaky-queue, rate: 1/hour, queue: {length: 1}}]",
        ] {
            for rest in [
                "",
                "allow: [{ip: 192.0.2.1}]\ndeny: [{ip: 192.0.2.2}]\n",
                "priorities: [{name: critical, endpoint: /a/**}, {name: bulk}]\nshed: {fleet: {rate: 3/hour, reserve: {critical: 50%}}}\n",
            ] {
                let policy = format!("privacy: {{keys: {privacy}}}\n{rest}limits: {limits}");
                check(&policy, None, &calls);
            }
        }
    }
    let policy = "limits: [{by: user, bucket: 1/day}]";
    check(policy, Some(NotHeld::NoPlace), &calls);
    check(policy, Some(NotHeld::TooLong), &calls);
    check(policy, Some(NotHeld::Displaced), &calls);
}

#[test]
fn a_packed_descriptor_reads_as_its_description() {
    let policy =
        "limits: [{descriptor: [user], bucket: 1/day}, {descriptor: [user, api_token], bucket: 1/day}]";
    let entries = [("user", "ann"), ("api_token", "sk-live-51HzQ")];
    let descriptors =
        [1, 1, 2].map(|count| Descriptor { domain: "envoy", entries: &entries[..count], cost: None });
    check(policy, None, &descriptors);
}

#[test]
fn a_decision_with_long_texts_is_not_packed() {
    let limits: Vec<_> = (0..20).map(|at| format!("{{name: l{at}, by: user, bucket: 1/day}}")).collect();
    let policy = format!("limits: [{}]", limits.join(","));
    let compared = compare(&policy, None, &[call()]);
    assert!(matches!(&*compared, [(packed, described)] if packed.is_empty() && !described.is_empty()));
}
