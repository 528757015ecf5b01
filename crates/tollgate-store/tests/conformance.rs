//! The in-memory store passes the suite that every store passes.

use std::future::{Future, ready};

use tollgate_core::{Span, Timestamp};
use tollgate_store::conformance::{self, Harness};
use tollgate_store::{ManualClock, MemoryStore};

struct Memory(MemoryStore<ManualClock>);

impl Harness for Memory {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> &Self::Store {
        &self.0
    }

    fn pass(&self, span: Span) -> impl Future<Output = ()> {
        self.0.clock().advance(span);
        ready(())
    }

    fn set_clock(&self, now: Timestamp) -> impl Future<Output = bool> {
        self.0.clock().set(now);
        ready(true)
    }
}

fn conforms(max_keys: usize) {
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    pollster::block_on(conformance::run(&Memory(MemoryStore::with_seed(max_keys, clock, 7))));
}

#[test]
fn memory_conforms() {
    conforms(10_000);
}
