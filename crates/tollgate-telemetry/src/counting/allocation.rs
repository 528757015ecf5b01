//! Checks that counting allocates nothing for any kind of decision.

use std::sync::{Arc, Mutex};

use tollgate::{Call, Event, Limiter, Observer, Policy, Watch};
use tollgate_testkit::allocations;

use super::PolicyCounters;
use crate::counts::Counters;

/// An observer that only counts, and records the number of allocations.
struct OnlyCounts {
    counters: Counters,
    allocations: Arc<Mutex<Vec<u64>>>,
}

impl Observer for OnlyCounts {
    fn watch(&self, policy: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
        Arc::new(AllocationNote {
            counters: self.counters.of(policy),
            allocations: Arc::clone(&self.allocations),
        })
    }
}

struct AllocationNote {
    counters: Arc<PolicyCounters>,
    allocations: Arc<Mutex<Vec<u64>>>,
}

impl Watch for AllocationNote {
    fn decided(&self, event: &Event<'_, '_>) {
        let made = allocations(|| {
            self.counters.count(event, event.decision.limiting(), self.counters.stripe(), |_| {});
        });
        self.allocations.lock().unwrap().push(made);
    }
}

#[test]
fn counting_allocates_nothing() {
    let policy = "
limits:
  - {name: two, endpoint: /a, by: user, windows: [2/hour, 9/day]}
  - {name: quiet, endpoint: /a, by: user, bucket: 1/hour, mode: shadow}
  - {name: bars, endpoint: /b, by: user, bucket: 9/hour, overrides: {ann: blocked}}
";
    let allocations = Arc::new(Mutex::new(Vec::new()));
    let observer = OnlyCounts { counters: Counters::new(), allocations: Arc::clone(&allocations) };
    let limiter = Limiter::from_policy(policy).unwrap().with_observer(observer);
    for path in ["/a", "/a", "/a", "/b", "/c"] {
        drop(limiter.check(&Call::new("GET", path).user("ann")));
    }
    assert_eq!(*allocations.lock().unwrap(), [0; 5]);
}
