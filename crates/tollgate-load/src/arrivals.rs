//! The schedule of arrivals, which no response delays.
//!
//! A task releases each arrival at its time, and requests take them in order. Arrivals that no request has taken yet are a
//! number, not a queue: a slow server does not grow memory.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use tollgate::{Clock, Sleeper, Timestamp};

use crate::plan::LoadPlan;

pub(crate) struct Arrivals {
    plan: LoadPlan,
    start: Timestamp,
    released: Semaphore,
    /// The number of arrivals whose time has come.
    issued: AtomicU64,
    taken: AtomicU64,
}

impl Arrivals {
    pub(crate) fn new(plan: LoadPlan, start: Timestamp) -> Self {
        let (issued, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { plan, start, released: Semaphore::new(0), issued, taken }
    }

    /// Releases all arrivals at their times.
    pub(crate) async fn release(&self, clock: &impl Clock) {
        // The timer thread wakes within a fraction of a millisecond, the timer of tokio within one.
        let sleeper = Sleeper::default();
        let total = self.plan.arrivals();
        let mut next = 0;
        while next < total {
            let (now, before) = (clock.now(), next);
            while next < total && self.start + self.plan.due(next) <= now {
                next += 1;
            }
            // Relaxed: the semaphore orders it before `take`.
            self.issued.store(next, Ordering::Relaxed);
            self.released.add_permits(usize::try_from(next - before).unwrap_or(usize::MAX));
            if next < total {
                sleeper.sleep((self.start + self.plan.due(next)).since(now).into()).await;
            }
        }
    }

    /// Ends the schedule, so that each of `takers` gets to know of the end. Returns the number of arrivals.
    pub(crate) fn stop(&self, takers: usize) -> u64 {
        self.released.add_permits(takers);
        self.issued.load(Ordering::Relaxed)
    }

    /// Returns the time of the next arrival when it is due; `None` after the last one.
    pub(crate) async fn take(&self) -> Option<Timestamp> {
        self.released.acquire().await.ok()?.forget();
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        (number < self.issued.load(Ordering::Relaxed)).then(|| self.start + self.plan.due(number))
    }
}
