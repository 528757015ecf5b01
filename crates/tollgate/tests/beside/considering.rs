//! Asking what would be decided charges nothing, and the answer is what is then decided.

use std::fmt::Write;

use tollgate::{Decision, Fate, Limiter, ManualClock, MemoryStore, Receipt, Span};

use crate::support::{Remote, START, amount, call, limiter, memory, pass, policy, whether};

/// Limits of all kinds; whether some of them count refusals.
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

/// Who lets the request pass.
fn said(decision: &Decision<'_>) -> (bool, Vec<bool>) {
    (decision.is_allowed(), decision.limits().map(|it| it.outcome().is_admitted()).collect())
}

fn waits(decision: &Decision<'_>) -> Vec<Option<Span>> {
    decision.limits().map(|it| it.outcome().retry_after()).collect()
}

/// Everything a decision says, to the last number.
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
fn a_question_is_answered_as_the_request_then_is_and_leaves_no_trace() {
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (text, counts_refusals) = limits(&mut rng);
        let clock = ManualClock::at(START);
        let (asked_first, never_asked) = (limiter(&text, &clock), limiter(&text, &clock));
        let (mut held, mut held_too) = (Vec::new(), Vec::new());
        for step in 0..80 {
            let (context, asked) = (format!("seed {seed}, step {step}\n{text}"), call(&mut rng));
            let keys = asked_first.store().usage().keys;
            for _ in 0..rng.usize(1..3) {
                let question = pollster::block_on(asked_first.consider(&asked)).unwrap();
                assert_eq!(question.owner(), None, "nobody holds anything for a question");
                assert_eq!(asked_first.store().usage().keys, keys, "{context}");
            }
            let question = pollster::block_on(asked_first.consider(&asked)).unwrap();
            let decision = asked_first.check(&asked);
            assert_eq!(said(&question), said(&decision), "{context}");
            // What counts refusals makes the wait longer by refusing.
            if !counts_refusals {
                let limiting = |it: &Decision<'_>| it.limiting().map(|it| it.name().to_owned());
                assert!(decision.is_allowed() || limiting(&question) == limiting(&decision), "{context}");
                assert_eq!(waits(&question), waits(&decision), "{context}");
                assert_eq!(question.retry_after(), decision.retry_after(), "{context}");
            }
            let other = never_asked.check(&asked);
            assert_eq!(all(&decision), all(&other), "{context}");
            held.extend(decision.receipt());
            held_too.extend(other.receipt());
            if rng.u8(..3) == 0 {
                let at = rng.usize(..8);
                release(&asked_first, &mut held, at);
                release(&never_asked, &mut held_too, at);
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
fn what_needs_no_counting_is_answered_too() {
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
