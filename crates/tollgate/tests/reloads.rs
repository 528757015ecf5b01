//! Admissions over reloads of the policy.

use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};

type Manual = Limiter<MemoryStore<ManualClock>>;

fn limiter(amount: &str) -> Manual {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_014_400));
    Limiter::with_store(policy(amount), MemoryStore::with_seed(1_000, clock, 7))
}

fn policy(amount: &str) -> Policy {
    Policy::parse(&format!("limits: [{{name: l, by: user, {amount}}}]")).expect("a valid value")
}

fn passed(limiter: &Manual, user: &str, plan: Option<&str>) -> usize {
    let call = || {
        let call = Call::new("GET", "/").user(user);
        if let Some(plan) = plan { call.plan(plan) } else { call }
    };
    (0..60).filter(|_| limiter.check(&call()).is_allowed()).count()
}

/// Every notation of twenty per day, with a placeholder for the number.
const WAYS: [&str; 7] = [
    "bucket: N/day",
    "bucket: 'N/day, burst N'",
    "algorithm: fixed-window, rate: N/day",
    "algorithm: fixed-window, align: calendar, rate: N/day",
    "algorithm: fixed-window, align: first-request, rate: N/day",
    "algorithm: sliding-window, rate: N/day, parts: 7",
    "algorithm: sliding-log, rate: N/day",
];

#[test]
fn no_sequence_of_reloads_admits_more_than_its_largest_limit() {
    for way in WAYS {
        let of = |units: u32| way.replace('N', &units.to_string());
        for sequence in
            [&[20, 10, 20][..], &[20, 10, 25], &[20, 5, 10, 15, 20], &[5, 30, 5, 30, 31], &[20, 21, 20]]
        {
            let mut limiter = limiter(&of(sequence[0]));
            let mut total = passed(&limiter, "ann", None);
            for &units in &sequence[1..] {
                limiter = limiter.with_policy(policy(&of(units)));
                total += passed(&limiter, "ann", None);
            }
            let largest = *sequence.iter().max().expect("a valid value") as usize;
            assert_eq!(total, largest, "{way}: {sequence:?}");
        }
    }
}

#[test]
fn changing_the_algorithm_and_back_admits_no_more() {
    for (one, other) in WAYS.iter().flat_map(|one| WAYS.iter().map(move |other| (one, other))) {
        let mut limiter = limiter(&one.replace('N', "20"));
        let mut total = passed(&limiter, "ann", None);
        for (way, units) in [(other, "10"), (one, "20"), (other, "15"), (one, "20")] {
            limiter = limiter.with_policy(policy(&way.replace('N', units)));
            total += passed(&limiter, "ann", None);
        }
        assert_eq!(total, 20, "{one} and {other}");
    }
}

#[test]
fn adding_or_removing_an_override_admits_no_more() {
    let with = "algorithm: fixed-window, rate: 20/day, overrides: {ann: 25/day}";
    for (plain, with) in [
        ("algorithm: fixed-window, rate: 20/day", with),
        ("bucket: 20/day", "bucket: 20/day, overrides: {ann: 25/day}"),
        (
            "algorithm: sliding-log, rate: 20/day",
            "algorithm: sliding-log, rate: 20/day, overrides: {ann: 25/day}",
        ),
    ] {
        let mut limiter = limiter(plain);
        let mut total = passed(&limiter, "ann", None);
        for next in [with, plain, with] {
            limiter = limiter.with_policy(policy(next));
            total += passed(&limiter, "ann", None);
        }
        assert_eq!(total, 25, "{with}");
        assert_eq!(passed(&limiter, "bob", None), 20, "{with}: others are counted as before");
    }
}

#[test]
fn adding_or_changing_a_plan_admits_no_more() {
    let plans = |units: u32| format!("bucket: 20/day, plans: {{pro: {units}/day}}");
    let mut limiter = limiter("bucket: 20/day");
    let mut total = passed(&limiter, "ann", Some("pro"));
    for units in [30, 10, 30, 35] {
        limiter = limiter.with_policy(policy(&plans(units)));
        total += passed(&limiter, "ann", Some("pro"));
    }
    assert_eq!(total, 35);
    let limiter = limiter.with_policy(policy("bucket: 20/day"));
    assert_eq!(passed(&limiter, "ann", Some("pro")), 0);
}

#[test]
fn a_raise_makes_no_wait_longer() {
    for way in WAYS {
        let of = |units: u32| way.replace('N', &units.to_string()).replace("day", "12s");
        if way.contains("calendar") {
            continue;
        }
        let limiter = limiter(&of(5));
        for _ in 0..5 {
            assert!(limiter.check(&Call::new("GET", "/").user("ann")).is_allowed(), "{way}");
            limiter.clock().advance(Span::from_micros(1_902_000));
        }
        let wait_of = |limiter: &Manual| {
            let decision = limiter.check(&Call::new("GET", "/").user("ann"));
            decision.advised_wait().unwrap_or_default()
        };
        let mut last = wait_of(&limiter);
        let mut raised = limiter.clone();
        for units in [5, 6, 7] {
            raised = raised.with_policy(policy(&of(units)));
            let wait = wait_of(&raised);
            assert!(wait <= last, "{way}: {last:?} became {wait:?} at {units}");
            last = wait;
        }
    }
}
