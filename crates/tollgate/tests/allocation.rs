//! An admitted request allocates nothing between matching and decision.

use tollgate::{Bucket, Call, Gate, Limiter, Rate};
use tollgate_testkit::{CountingAllocator, allocations};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const POLICY: &str = "
limits:
  - {name: login-by-ip, endpoint: /api/v1/login, by: ip, bucket: 1000/minute}
  - {name: login-by-user, endpoint: /api/v1/login, by: user, bucket: 1000/minute}
  - {name: api, endpoint: '/api/**', by: [tenant, user], bucket: 7000/hour}
  - {name: day, endpoint: '/api/**', by: api_key, rate: 5000/day, algorithm: fixed-window}
";

#[test]
fn an_admitted_request_allocates_nothing() {
    let limiter = Limiter::from_policy(POLICY).unwrap();
    let call =
        Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]).user("ann").tenant("acme").api_key("k-1");
    // Known keys and new keys.
    for round in 0..3 {
        let counted = allocations(|| {
            let decision = limiter.check(&call);
            assert!(decision.is_allowed());
            assert_eq!(decision.limits().count(), 4);
            assert!(decision.limiting().is_some());
        });
        assert_eq!(counted, 0, "in round {round}");
    }
}

#[test]
fn a_refused_request_allocates_nothing_either() {
    let limiter =
        Limiter::from_policy("limits: [{by: ip, bucket: 1/hour}, {by: global, bucket: 9/hour}]").unwrap();
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    assert!(limiter.check(&call).is_allowed());
    let counted = allocations(|| assert!(limiter.check(&call).retry_after().is_some()));
    assert_eq!(counted, 0);
}

#[test]
fn a_gate_allocates_nothing() {
    let gate = Gate::new("gate", Bucket::new(Rate::per_hour(2)).unwrap());
    let counted = allocations(|| {
        assert!(gate.check("ann").is_ok());
        assert!(gate.check("ann").is_ok());
        assert!(gate.check("ann").is_err_and(|refusal| refusal.retry_after.is_some()));
    });
    assert_eq!(counted, 0);
}
