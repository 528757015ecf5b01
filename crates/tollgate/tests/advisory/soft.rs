//! A limit marks requests from its soft threshold until it refuses.

use tollgate::{Call, Decision, Limit, ManualClock};

use super::support::{START, limiter};

fn is_soft(decision: &Decision<'_>) -> Vec<bool> {
    decision.limits().map(|it| it.is_soft()).collect()
}

#[test]
fn requests_are_marked_from_the_threshold_until_the_refusal() {
    let clock = ManualClock::at(START);
    let limiter = limiter(
        "limits:
           - {name: a, by: user, bucket: 10/hour, soft: 80%}
           - {name: quiet, by: user, bucket: 11/hour}
           - {name: never, by: user, bucket: 10/hour, soft: 1%, mode: shadow}",
        &clock,
    );
    let ann = Call::new("GET", "/").user("ann");
    for request in 1..=12 {
        let decision = limiter.check(&ann);
        assert_eq!(is_soft(&decision), [(8..=10).contains(&request), false, false], "request {request}");
        assert_eq!(decision.is_allowed(), request <= 10);
    }
}

#[test]
fn slots_that_are_held_count_towards_the_threshold() {
    let clock = ManualClock::at(START);
    let limiter = limiter("limits: [{name: a, by: user, slots: 4, soft: 75%}]", &clock);
    let ann = Call::new("GET", "/").user("ann");
    let held: Vec<_> = (0..4).map(|_| limiter.check(&ann)).collect();
    let soft: Vec<_> = held.iter().flat_map(is_soft).collect();
    assert_eq!(soft, [false, false, true, true]);
    pollster::block_on(limiter.release(&held[0])).unwrap();
    pollster::block_on(limiter.release(&held[1])).unwrap();
    assert_eq!(is_soft(&limiter.check(&ann)), [true], "three of four again");
    assert!(limiter.policy().limits().iter().all(|it: &Limit| it.soft().is_some()));
}
