//! The conformance suite: rules without a lease are decided as by the inner store.

use pollster::block_on;
use tollgate_core::{Span, Timestamp};
use tollgate_lease::Leased;
use tollgate_store::ManualClock;
use tollgate_store::conformance::{Harness, run};

use crate::remote::{Remote, START};

struct OnRemote {
    clock: ManualClock,
    store: Leased<Remote, ManualClock>,
}

impl Harness for OnRemote {
    type Store = Leased<Remote, ManualClock>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    async fn pass(&self, span: Span) {
        self.clock.advance(span);
    }

    async fn set_clock(&self, now: Timestamp) -> bool {
        let _ = now;
        false
    }
}

#[test]
fn a_leased_store_passes_the_conformance_suite() {
    let clock = ManualClock::at(START);
    let store = Remote::new(&clock, 1).node(&clock, 1);
    block_on(run(&OnRemote { clock, store }));
}
