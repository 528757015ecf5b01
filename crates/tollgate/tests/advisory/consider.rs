//! `consider` charges nothing, and its answer equals that of the following decision.

use std::fmt::Write;

use tollgate::{Decision, Fate, Limiter, ManualClock, MemoryStore, Receipt, Span};

use super::support::{Remote, START, amount, call, limiter, memory, pass, policy, whether};

/// Returns limits of all kinds, and whether some of them count refusals.
fn limits(rng: &mut fastrand::Rng) -> (String, bool) {
    let mut text = String::from("limits:\n");
    let mut counts_any = false;
    for (at, by) in ["user", "ip", "global"].into_iter().enumerate().take(rng.usize(1..4)) {
        let counts = rng.u8(..4) == 0;
        counts_any |= counts;
        let mode = ["enforce", "enforce", "shadow"][rng.usize(..3)];
        let how_much = match rng.u8(..4) {
            0 => format!("slots: {}, ttl: 20s", rng.u8(1..6)),
            _ => format!("{}{}", amount(rng), whether("count_denied", counts)),
        };
        writeln!(text, "  - {{name: n{at}, by: {by}, {how_much}, mode: {mode}}}").unwrap();
    }
    (text, counts_any)
}

/// Returns whether the decision and each limit admit the request.
fn admissions(decision: &Decision<'_>) -> (bool, Vec<bool>) {
    (decision.is_allowed(), decision.limits().map(|it| it.outcome().is_admitted()).collect())
}

fn waits(decision: &Decision<'_>) -> Vec<Option<Span>> {
    decision.limits().map(|it| it.outcome().retry_after()).collect()
}

/// Returns all outcomes of a decision.
fn all(decision: &Decision<'_>) -> Vec<(String, tollgate::Outcome)> {
    decision.limits().map(|it| (it.name().to_owned(), *it.outcome())).collect()
}

type Memory = Limiter<MemoryStore<ManualClock>>;

fn release(limiter: &Memory, held: &mut Vec<Receipt>, at: usize) {
    if at < held.len() {
        pollster::block_on(limiter.release_receipt(&held.swap_remove(at))).unwrap();
    }
}

#[test]
fn consider_answers_as_the_next_decision_and_leaves_no_trace() {
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (text, counts_refusals) = limits(&mut rng);
        let clock = ManualClock::at(START);
        let (considering, deciding_only) = (limiter(&text, &clock), limiter(&text, &clock));
        let (mut held, mut held_too) = (Vec::new(), Vec::new());
        for step in 0..80 {
            let (context, request) = (format!("seed {seed}, step {step}\n{text}"), call(&mut rng));
            let keys = considering.usage().keys;
            for _ in 0..rng.usize(1..3) {
                let question = pollster::block_on(considering.consider(&request)).unwrap();
                assert_eq!(question.owner(), None, "`consider` takes no slot");
                assert_eq!(considering.usage().keys, keys, "{context}");
            }
            let question = pollster::block_on(considering.consider(&request)).unwrap();
            let decision = considering.check(&request);
            assert_eq!(admissions(&question), admissions(&decision), "{context}");
            // A limit that counts refusals makes the wait longer by refusing.
            if !counts_refusals {
                let limiting = |it: &Decision<'_>| it.limiting().map(|it| it.name().to_owned());
                assert!(decision.is_allowed() || limiting(&question) == limiting(&decision), "{context}");
                assert_eq!(waits(&question), waits(&decision), "{context}");
                assert_eq!(question.retry_after(), decision.retry_after(), "{context}");
            }
            let other = deciding_only.check(&request);
            assert_eq!(all(&decision), all(&other), "{context}");
            held.extend(decision.receipt());
            held_too.extend(other.receipt());
            if rng.u8(..3) == 0 {
                let at = rng.usize(..8);
                release(&considering, &mut held, at);
                release(&deciding_only, &mut held_too, at);
            }
            if decision.is_allowed() {
                allowed += 1;
            } else {
                refused += 1;
            }
            pass(&clock, &mut rng);
        }
    }
    assert!(allowed > 5_000 && refused > 5_000, "both occur: {allowed}, {refused}");
}

#[test]
fn lists_and_blocks_are_considered_too() {
    let clock = ManualClock::at(START);
    let text = "
deny: [{user: eve}]
allow: [{user: root}]
limits:
  - {name: a, endpoint: /a, by: user, bucket: 1/hour, overrides: {bob: blocked}}
";
    let limiter = Limiter::with_store(policy(text), Remote(memory(&clock)));
    let fate = |path, user| {
        let call = tollgate::Call::new("GET", path).user(user);
        let question = pollster::block_on(limiter.consider(&call)).unwrap();
        assert_eq!(question.fate(), pollster::block_on(limiter.decide(&call)).fate());
        question.fate()
    };
    assert!(matches!(fate("/a", "eve"), Fate::DenyListed(_)));
    assert!(matches!(fate("/a", "root"), Fate::AllowListed(_)));
    assert!(matches!(fate("/a", "bob"), Fate::Blocked(_)));
    assert!(matches!(fate("/b", "ann"), Fate::Admitted));
    assert!(matches!(fate("/a", "ann"), Fate::Admitted));
    assert!(matches!(fate("/a", "ann"), Fate::Refused));
}
