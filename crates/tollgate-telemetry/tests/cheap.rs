//! Observing a request allocates nothing, whether it is admitted or refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Timestamp};
use tollgate_telemetry::{WatchSettings, Watcher};
use tollgate_testkit::{CountingAllocator, allocations};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const POLICY: &str = "
limits:
  - {name: login, endpoint: /api/v1/login, by: ip, bucket: 100000/minute}
  - {name: api, endpoint: '/api/**', by: [tenant, user], bucket: 700000/hour, soft: 80%}
  - {name: quiet, endpoint: '/api/**', by: user, bucket: 500000/hour, mode: shadow}
";

#[test]
fn an_admitted_request_is_observed_without_allocating() {
    let clock = ManualClock::at(Timestamp::from_secs(1_731_672_000));
    let store = MemoryStore::with_clock(10_000, clock.clone());
    let watcher = Watcher::new(&WatchSettings::default());
    let limiter = Limiter::with_store(Policy::parse(POLICY).unwrap(), store)
        .with_observer_on(Arc::new(watcher.clone()), clock);
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let calls = ["ann", "bob", "cat", "dan"].map(|user| {
        let call = Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]).user(user);
        call.tenant("acme").header("traceparent", header)
    });
    let ask = |turn: usize| assert!(limiter.check(&calls[turn % 4]).is_allowed());
    // Uses up the samples of this second.
    (0..100).for_each(ask);
    assert_eq!(allocations(|| (0..10_000).for_each(ask)), 0);
    assert_eq!(watcher.latest_records(usize::MAX, false).len(), 20);
}

const REFUSING: &str = "
deny: [{user: mallory}]
limits:
  - {name: login, endpoint: /api/v1/login, by: ip, bucket: 1000000/day}
  - {name: api, endpoint: '/api/**', by: [tenant, user], windows: [1000000/hour, 1/day]}
  - {name: global, endpoint: '/api/**', by: global, bucket: 1000000/day}
  - {name: keyed, endpoint: /keyed, by: api_key, bucket: 1/day, missing: refuse}
";

/// Refuses requests of some users, and returns the number of allocations for each kind of refusal: by a limit, by a deny
/// list, and without a key.
fn allocations_of_refusals(privacy: &str, users: usize, is_observed: bool) -> [u64; 3] {
    let clock = ManualClock::at(Timestamp::from_secs(1_731_672_000));
    let store = MemoryStore::with_clock(100_000, clock.clone());
    let watcher = Watcher::new(&WatchSettings { records: 1_000, ..WatchSettings::default() });
    let policy = Policy::parse(&format!("privacy: {{keys: {privacy}}}\n{REFUSING}")).unwrap();
    let mut limiter = Limiter::with_store(policy, store);
    if is_observed {
        limiter = limiter.with_observer_on(Arc::new(watcher.clone()), clock);
    }
    let names: Vec<_> = (0..users).map(|user| format!("user-{user}")).collect();
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let login = |user| {
        let call = Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]).user(user);
        call.tenant("acme").host("example.com").header("traceparent", header)
    };
    let calls: Vec<_> = names.iter().map(|name| login(name)).collect();
    // The second request of a user is the first that is refused.
    for call in calls.iter().chain(&calls) {
        drop(limiter.check(call));
    }
    let (listed, keyless) = ([login("mallory")], [Call::new("GET", "/keyed").ip([203, 0, 113, 9])]);
    let made = [&calls[..], &listed, &keyless].map(|calls| {
        let ask = |turn: usize| assert!(!limiter.check(&calls[turn % calls.len()]).is_allowed());
        // Each set of the cache of keys has a buffer that it allocates once.
        (0..3_000).for_each(ask);
        allocations(|| (0..3_000).for_each(ask))
    });
    if is_observed {
        assert_eq!(watcher.totals().refused(), 3 * 6_000 + u64::try_from(users).unwrap());
        assert_eq!(watcher.latest_records(usize::MAX, true).len(), watcher.kept().refusals);
    }
    made
}

#[test]
fn a_refused_request_is_recorded_without_allocating() {
    for privacy in ["plain", "hashed", "truncated"] {
        // One key, and more keys than are counted in a pane and cached.
        for users in [1, 1_500] {
            let made = [false, true].map(|is_observed| allocations_of_refusals(privacy, users, is_observed));
            assert_eq!(made[0], made[1], "{privacy}, {users} users");
        }
    }
}
