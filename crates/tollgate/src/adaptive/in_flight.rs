//! A request in flight, as a guard.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::Timestamp;
use tollgate_overload::adaptive::{Outcome, Sample};
use tollgate_store::Clock;

use super::key_limit::{Admission, KeyLimit};

/// The end of a request, for limits that learn from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The service answered. An error that is the caller's fault is an answer.
    Answered,
    /// The service failed under load: it refused the request, could not be reached or timed out.
    Failed,
    /// The end says nothing about the service.
    Ignored,
}

/// A request in flight under limits with a learned number of slots (`slots: adaptive`).
///
/// The request is in flight until the guard is dropped. Its latency is the time from
/// the last [`start`](Self::start) to [`complete`](Self::complete), and counts once. A guard that is dropped
/// without `start` says nothing about the service. One that is dropped between the two was left by its
/// caller: the time until then counts if it is longer than usual.
pub struct InFlight {
    entries: SmallVec<[Entry; 1]>,
    clock: Arc<dyn Clock>,
    /// In microseconds; zero before the start.
    started_at: AtomicU64,
    is_recorded: AtomicBool,
    hold_on_hangup: Option<Duration>,
}

/// The request among those of one key.
pub(super) struct Entry {
    limit: Arc<KeyLimit>,
    admission: Admission,
}

impl Entry {
    pub(super) fn new(limit: &Arc<KeyLimit>, admission: Admission) -> Self {
        Self { limit: Arc::clone(limit), admission }
    }
}

impl InFlight {
    pub(super) fn new(
        entries: SmallVec<[Entry; 1]>,
        clock: &Arc<dyn Clock>,
        hold_on_hangup: Option<Duration>,
    ) -> Self {
        Self {
            entries,
            clock: Arc::clone(clock),
            started_at: AtomicU64::new(0),
            is_recorded: AtomicBool::new(false),
            hold_on_hangup,
        }
    }

    /// Records that the request is passed to the service now.
    pub fn start(&self) {
        self.started_at.store(self.clock.now().as_micros().max(1), Ordering::Relaxed);
    }

    /// Records that the service waits for the caller, and not the caller for the service. Until the next
    /// [`start`](Self::start), the request says nothing about the latency of the service.
    pub fn stop(&self) {
        self.started_at.store(0, Ordering::Relaxed);
    }

    /// Records the end of the work on the request, such as the head of the response. The request stays in
    /// flight until the guard is dropped. Only the first call counts.
    pub fn complete(&self, outcome: RequestOutcome) {
        let is_started = self.started_at.load(Ordering::Relaxed) > 0;
        self.record(match outcome {
            RequestOutcome::Answered if is_started => Outcome::Answered,
            RequestOutcome::Failed => Outcome::Failed,
            RequestOutcome::Answered | RequestOutcome::Ignored => Outcome::Ignored,
        });
    }

    /// Returns how long the request stays in flight at most if its caller disconnects before the service
    /// has answered; `None` if the limits say `on_hangup: release`.
    pub const fn hold_on_hangup(&self) -> Option<Duration> {
        self.hold_on_hangup
    }

    fn record(&self, outcome: Outcome) {
        if self.is_recorded.swap(true, Ordering::Relaxed) {
            return;
        }
        let now = self.clock.now();
        let started_at = match self.started_at.load(Ordering::Relaxed) {
            0 => now,
            micros => Timestamp::from_micros(micros),
        };
        for Entry { limit, admission } in &self.entries {
            let sample = Sample {
                number: admission.number,
                inflight: admission.in_flight,
                latency: now.since(started_at).into(),
                outcome,
            };
            limit.record(sample, now);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let is_started = self.started_at.load(Ordering::Relaxed) > 0;
        self.record(if is_started { Outcome::Abandoned } else { Outcome::Ignored });
        for entry in &self.entries {
            entry.limit.leave();
        }
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("limits", &self.entries.len()).finish_non_exhaustive()
    }
}
