//! Observing an admitted request allocates nothing, except for the sampled records.
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
