//! A candidate counts and answers as the same numbers in force would.
//!
//! Two limiters get the same requests at the same times. In one the numbers are a candidate of a
//! limit, in the other they are in force in its place.

use tollgate::{Call, Decision, Limiter, ManualClock, MemoryStore, Mode, Outcome, Span};

use super::support::{Remote, START, amount, call, limiter, memory, pass, policy, whether};

/// Refuses every request with the header, in both limiters: its only unit is spent at the start.
const DOOM: &str = "{name: doom, headers: {X-Doomed: '*'}, by: global, bucket: 1/1000d}";

fn doomed() -> Call<'static> {
    Call::new("GET", "/").user("nobody").header("X-Doomed", "1")
}

fn of_candidate(decision: &Decision<'_>) -> Vec<Outcome> {
    let tried = decision.limits().filter(|it| it.limit().candidate_of().is_some());
    tried.map(|it| *it.outcome()).collect()
}

fn of(name: &str, decision: &Decision<'_>) -> Vec<Outcome> {
    decision.limits().filter(|it| it.limit().name() == name).map(|it| *it.outcome()).collect()
}

/// All fields except the units, which are not reported for a refused request that is charged.
type OutcomeView = (bool, Option<Span>, u64, Span);

fn views(outcomes: &[Outcome]) -> Vec<OutcomeView> {
    let views = |it: &Outcome| (it.is_admitted(), it.retry_after(), it.remaining, it.reset_after);
    outcomes.iter().map(views).collect()
}

/// Sends the same requests to both limiters and compares their answers. Returns the numbers of
/// requests that the two decided differently.
fn compare(seed: u64, live_mode: &str, waited_for: bool) -> (u32, u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (live, tried) = (amount(&mut rng), amount(&mut rng));
    let counts = whether("count_denied", rng.u8(..4) == 0);
    let tried = format!("{tried}{counts}");
    let live = format!("{live}{}, mode: {live_mode}", whether("count_denied", rng.u8(..4) == 0));
    let clock = ManualClock::at(START);
    let beside = format!("limits: [{{name: it, by: user, {live}, candidate: {{{tried}}}}}, {DOOM}]");
    let in_force = limiter(&format!("limits: [{{name: it, by: user, {tried}}}, {DOOM}]"), &clock);
    let here = limiter(&beside, &clock);
    let there = Limiter::with_store(policy(&beside), Remote(memory(&clock)));
    let (mut alone_admitted, mut alone_refused) = (0, 0);
    for step in 0..120 {
        let mut request = if step == 0 { doomed() } else { call(&mut rng) };
        if rng.u8(..6) == 0 {
            request = request.header("X-Doomed", "1");
        }
        let decision =
            if waited_for { pollster::block_on(there.decide(&request)) } else { here.check(&request) };
        let other = in_force.check(&request);
        let (candidate_view, in_force_view) = (of_candidate(&decision), of("it", &other));
        assert!(!candidate_view.is_empty());
        assert_eq!(
            views(&candidate_view),
            views(&in_force_view),
            "seed {seed}, step {step}, {request:?}\n{beside}"
        );
        alone_admitted += u32::from(other.is_allowed() && !decision.is_allowed());
        alone_refused += u32::from(!other.is_allowed() && decision.is_allowed());
        pass(&clock, &mut rng);
    }
    (alone_admitted, alone_refused)
}

fn compare_many(mode: &str, waited_for: bool) -> (u32, u32) {
    let sums = (0..250).map(|seed| compare(seed, mode, waited_for));
    sums.fold((0, 0), |sum, (admitted, refused)| (sum.0 + admitted, sum.1 + refused))
}

#[test]
fn a_candidate_counts_as_if_it_were_in_force() {
    let (admitted, refused) = compare_many("enforce", false);
    assert!(admitted > 500 && refused > 500, "the limiters differ: {admitted}, {refused}");
}

#[test]
fn a_candidate_counts_as_if_it_were_in_force_on_a_store_that_waits() {
    let (admitted, refused) = compare_many("enforce", true);
    assert!(admitted > 500 && refused > 500, "the limiters differ: {admitted}, {refused}");
}

#[test]
fn a_candidate_counts_beside_a_limit_in_shadow_mode_or_off() {
    for mode in ["shadow", "off"] {
        let (admitted, refused) = compare_many(mode, false);
        assert!(admitted == 0 && refused > 500, "{mode} never refuses: {admitted}, {refused}");
    }
}

#[test]
fn a_limit_in_shadow_mode_counts_as_if_it_were_in_force() {
    for seed in 0..250 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tried = format!("{}{}", amount(&mut rng), whether("count_denied", rng.bool()));
        let clock = ManualClock::at(START);
        let text = |mode| format!("limits: [{{name: it, by: user, {tried}, mode: {mode}}}, {DOOM}]");
        let (shadow, enforced) = (limiter(&text("shadow"), &clock), limiter(&text("enforce"), &clock));
        for step in 0..120 {
            let mut request = if step == 0 { doomed() } else { call(&mut rng) };
            if rng.u8(..6) == 0 {
                request = request.header("X-Doomed", "1");
            }
            let (decision, other) = (shadow.check(&request), enforced.check(&request));
            assert_eq!(views(&of("it", &decision)), views(&of("it", &other)), "seed {seed}, step {step}");
            pass(&clock, &mut rng);
        }
    }
}

/// Checks that the outcome of the limit is the same as without a candidate.
#[test]
fn a_candidate_does_not_affect_its_limit() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (live, tried) = (amount(&mut rng), amount(&mut rng));
        let clock = ManualClock::at(START);
        let alone = limiter(&format!("limits: [{{name: it, by: user, {live}}}]"), &clock);
        let both = format!("limits: [{{name: it, by: user, {live}, candidate: {{{tried}}}}}]");
        let both = limiter(&both, &clock);
        for step in 0..100 {
            let request = call(&mut rng);
            let (one, two) = (alone.check(&request), both.check(&request));
            assert_eq!(of("it", &one), of("it", &two), "seed {seed}, step {step}");
            assert_eq!((one.is_allowed(), one.retry_after()), (two.is_allowed(), two.retry_after()));
            assert_eq!(two.limiting().map(|it| it.limit().mode()), Some(Mode::Enforce));
            pass(&clock, &mut rng);
        }
    }
}

#[test]
fn two_candidates_are_independent() {
    let clock = ManualClock::at(START);
    let limiter = limiter(
        "limits:
           - {name: a, by: user, bucket: 1/hour, candidate: {bucket: 3/hour}}
           - {name: b, by: user, bucket: 2/hour, candidate: {bucket: 9/hour}}",
        &clock,
    );
    let ann = Call::new("GET", "/").user("ann");
    let left = |decision: &Decision<'_>| -> Vec<u64> {
        decision.limits().map(|it| it.outcome().remaining).collect()
    };
    assert_eq!(left(&limiter.check(&ann)), [0, 2, 1, 8]);
    // With the candidate of `a` in force this would have passed; with that of `b`, `a` refuses.
    assert_eq!(left(&limiter.check(&ann)), [0, 1, 1, 8]);
    assert_eq!(left(&limiter.check(&ann)), [0, 0, 1, 8]);
    assert_eq!(left(&limiter.check(&ann)), [0, 0, 1, 8]);
}

#[test]
fn a_candidate_switched_to_enforce_is_not_charged_for_refused_requests() {
    let clock = ManualClock::at(START);
    let text = policy("limits: [{name: a, by: user, bucket: 1/hour, candidate: {bucket: 3/hour}}]");
    let limiter = Limiter::with_store(text.with_modes(|_| Mode::Enforce), memory(&clock));
    let ann = Call::new("GET", "/").user("ann");
    for _ in 0..5 {
        assert_eq!(of("a.candidate", &limiter.check(&ann))[0].remaining, 2);
    }
}

#[test]
fn a_candidate_holds_slots_only_for_requests_that_run() {
    let clock = ManualClock::at(START);
    let limiter = limiter("limits: [{name: a, by: user, slots: 1, candidate: {slots: 2}}]", &clock);
    let ann = Call::new("GET", "/").user("ann");
    let first = limiter.check(&ann);
    assert_eq!(of_candidate(&first)[0].remaining, 1);
    for _ in 0..5 {
        let refused = limiter.check(&ann);
        assert!(!refused.is_allowed());
        assert!(of_candidate(&refused)[0].is_admitted(), "it would have had room");
        assert_eq!(of_candidate(&refused)[0].remaining, 1, "a refused request holds no slot");
    }
    pollster::block_on(limiter.release(&first)).unwrap();
    assert_eq!(of_candidate(&limiter.check(&ann))[0].remaining, 1);
}

/// A request that a shadow limit would have refused is not settled either.
#[test]
fn a_refunded_window_is_not_settled_later() {
    let clock = ManualClock::at(START);
    let limiter = limiter(
        "limits: [{name: a, by: user, bucket: 100/hour, candidate: {windows: [1/second, 50/hour]}}]",
        &clock,
    );
    let ann = Call::new("GET", "/").user("ann");
    let settle = |limiter: &Limiter<MemoryStore<ManualClock>>| {
        let decision = limiter.check(&ann);
        pollster::block_on(limiter.settle(&decision, 5)).unwrap();
    };
    settle(&limiter);
    settle(&limiter);
    clock.advance(Span::from_secs(20));
    let now = limiter.check(&ann);
    assert_eq!(of("a", &now)[0].remaining, 89, "ten were settled, one was taken");
    assert_eq!(of_candidate(&now)[1].remaining, 44, "five were settled, one was taken");
}
