//! From the text of a policy to the decision: no schedule and no flood exceeds a limit.

use tollgate::store::ManualClock;
use tollgate::{Call, Limiter, MemoryStore, Policy, Span, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_772_366_400);

fn limiter(policy: &str, max_keys: usize) -> Limiter<MemoryStore<ManualClock>> {
    let policy = Policy::parse(policy).expect("a policy without mistakes");
    Limiter::with_store(policy, MemoryStore::with_seed(max_keys, ManualClock::at(START), 7))
}

/// Seven instants fill seven parts; the burst is merged with the single unit before it.
fn burst_behind_one(options: &str) -> usize {
    let limit = format!("{{name: api, by: ip, rate: 100/minute, algorithm: sliding-window, {options}}}");
    let limiter = limiter(&format!("limits: [{limit}]"), 1_000);
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    let schedule = [(0, 1), (13_000, 1), (20_000, 1), (26_000, 1), (32_000, 1), (40_000, 1)];
    let burst = [(56_000, 1), (56_100, 94), (116_099, 100)];
    let mut within_a_minute = 0;
    for (at, requests) in schedule.into_iter().chain(burst) {
        limiter.clock().set(START + Span::from_millis(at));
        let passed = (0..requests).filter(|_| limiter.check(&call).is_allowed()).count();
        within_a_minute += if at > 56_099 { passed } else { 0 };
    }
    within_a_minute
}

#[test]
fn no_schedule_exceeds_the_limit_of_a_strict_window() {
    assert!(burst_behind_one("parts: 7") >= 180, "the estimate admits this");
    assert!(burst_behind_one("strict: true, parts: 7") <= 100);
    assert!(burst_behind_one("strict: true") <= 100);
}

#[test]
fn a_flood_under_another_limit_frees_no_drained_key() {
    for how in
        ["sliding-log", "sliding-window", "sliding-window, parts: 7", "fixed-window, align: first-request"]
    {
        let limiter = limiter(
            &format!(
                "max_keys: 2000
limits:
  - {{name: drained, endpoint: /d, by: user, rate: 10/20s, algorithm: {how}}}
  - {{name: flooded, endpoint: /f, by: user, rate: 10/20s, algorithm: {how}}}"
            ),
            2_000,
        );
        let users: Vec<String> = (0..30_000).map(|n| format!("user-{n}")).collect();
        let passes =
            |path, user: usize| limiter.check(&Call::new("GET", path).user(&users[user])).is_allowed();
        let drained = |limit: usize| (0..200).flat_map(move |user| (0..limit).map(move |_| user));
        assert_eq!(drained(10).filter(|&user| passes("/d", user)).count(), 2_000, "{how}");
        for second in 1..20_u32 {
            limiter.clock().set(START + Span::from_secs(second.into()));
            for user in 0..3_000 {
                passes("/f", (second as usize * 1_500 + user) % users.len());
            }
            // The estimate gives back a little as time passes; the other algorithms give back
            // nothing.
            let freed = drained(1).filter(|&user| passes("/d", user)).count();
            assert!(freed == 0 || how == "sliding-window", "{how}: {freed} of 200 after {second} s");
        }
    }
}

/// Returns a call with two keys.
fn with_keys<'a>(one: &'a str, other: &'a str) -> Call<'a> {
    Call::new("GET", "/").ip([203, 0, 113, 9]).header("x-api-key", one).header("x-api-key", other)
}

/// Returns how many of 20 requests pass with each of these keys and a fresh key beside it.
fn passed_beside_fresh_keys(policy: &str, named: &[&str]) -> usize {
    let limiter = limiter(policy, 1_000);
    let fresh: Vec<String> = (0..20).map(|n| format!("fresh-{n}")).collect();
    let passes = |named: &str, fresh: &String| limiter.check(&with_keys(named, fresh)).is_allowed();
    named.iter().map(|named| fresh.iter().filter(|fresh| passes(named, fresh)).count()).sum()
}

#[test]
fn a_caller_that_names_several_overrides_has_one_allowance() {
    let one_window = "{t1: 2/hour, t2: 1/hour, v: 1000/hour}";
    for (how, overrides) in [
        ("bucket: 3/hour", one_window),
        ("rate: 3/hour, algorithm: sliding-log", one_window),
        ("windows: [9/hour, 3/day]", "{t1: [9/hour, 2/day], t2: [9/hour, 1/day], v: [20/hour, 40/day]}"),
    ] {
        let policy = format!("limits: [{{by: api_key, {how}, overrides: {overrides}}}]");
        assert_eq!(passed_beside_fresh_keys(&policy, &["a", "t1", "t2", "v"]), 3, "{how}");
        assert_eq!(passed_beside_fresh_keys(&policy, &["t2", "t1", "a", "v"]), 3, "{how}");
        assert_eq!(passed_beside_fresh_keys(&policy, &["t1"]), 2, "{how}");
    }
    let slots = "limits: [{by: api_key, slots: 3, overrides: {t1: 2, t2: 1}}]";
    assert_eq!(passed_beside_fresh_keys(slots, &["a", "t1", "t2"]), 3, "slots");
    assert_eq!(passed_beside_fresh_keys(slots, &["t2", "t1", "a"]), 3, "slots");
}

#[test]
fn the_charge_of_an_ambiguous_request_is_released_and_settled_under_every_rule() {
    let slots = limiter("limits: [{by: api_key, slots: 3, ttl: 1h, overrides: {t1: 1}}]", 1_000);
    for round in 0..5 {
        let held = slots.check(&with_keys("t1", "x"));
        assert!(held.is_allowed(), "round {round}");
        assert!(!slots.check(&with_keys("t1", "y")).is_allowed(), "round {round}");
        pollster::block_on(slots.release(&held)).expect("a store in memory");
    }
    let costs = limiter(
        "limits: [{by: api_key, bucket: 100/day, overrides: {t1: 50/day}, cost: {reserve: 1, settle: json:n}}]",
        1_000,
    );
    let admitted = costs.check(&with_keys("t1", "x"));
    pollster::block_on(costs.settle(&admitted, 50)).expect("a store in memory");
    assert!(!costs.check(&with_keys("t1", "y")).is_allowed(), "50 of 50 are spent");
    assert!(costs.check(&with_keys("a", "y")).is_allowed(), "50 of 100 are spent");
}
