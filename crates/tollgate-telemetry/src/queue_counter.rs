//! The requests that wait in the queues of one limit: their waits, and how many wait now.
//!
//! A request waits from its decision until its turn, so the number of those that wait now follows from
//! the times at which they start. Start times are kept in steps of [`FINE_STEP`], or of [`COARSE_STEP`]
//! for long waits: the memory of a limit is bounded by the longest wait. A request that leaves is
//! removed when its refund is reported.
//!
//! Start times are by the clock of the store, which counted them.
//!
//! A request that waits in line for a slot does not know its start. It is counted when it joins the line
//! and when it leaves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Span, Timestamp};

use crate::histogram::{Histogram, QUEUE_WAIT, Spread};
use crate::history::MAX_STEPS;
use crate::stripes::Striped;

/// The step of start times within the next minute.
const FINE_STEP: Span = Span::from_millis(10);
/// The step of later start times.
const COARSE_STEP: Span = Span::from_secs(10);

/// The requests that wait in the queues of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// The number of requests that wait now, over all keys.
    pub waiting: u64,
    /// The median and the 99th percentile of the waits in the last five minutes, rounded up to the
    /// bound of a bucket. `None` if no request had to wait.
    pub waits: Option<[Span; 2]>,
}

/// The counters of the queues of one limit.
#[derive(Default)]
pub(crate) struct QueueCounter {
    waits: Striped<Histogram<16>>,
    starts: Mutex<Starts>,
    /// The number of requests that wait in line for a slot.
    in_line: AtomicU64,
    /// The waits at the end of each of the last steps, the oldest first.
    past: Mutex<VecDeque<Spread<16>>>,
}

/// The start times of requests that wait.
#[derive(Default)]
struct Starts {
    /// The number of requests by the time at which they start, in microseconds.
    by_time: BTreeMap<u64, u64>,
    /// How far the clock of the store is ahead of that of this node, in microseconds.
    ahead: i64,
}

impl Starts {
    /// Returns the time under which a start is kept.
    fn step(at: Timestamp, wait: Span) -> u64 {
        let step = if wait <= Span::from_minutes(1) { FINE_STEP } else { COARSE_STEP };
        (at + wait).as_micros().div_ceil(step.as_micros()).saturating_mul(step.as_micros())
    }

    fn forget_before(&mut self, now: Timestamp) {
        self.by_time = self.by_time.split_off(&now.as_micros().saturating_add(1));
    }
}

impl QueueCounter {
    /// Records a request that was admitted at `at` with a wait. `now` is the time by the clock of this
    /// node.
    pub(crate) fn enter(&self, at: Timestamp, wait: Span, now: Timestamp) {
        let (waits, adder) = self.waits.mine();
        waits.put(&QUEUE_WAIT, wait.as_micros(), adder);
        let mut starts = self.starts();
        starts.ahead = at.ahead_of(now);
        starts.forget_before(at);
        *starts.by_time.entry(Starts::step(at, wait)).or_default() += 1;
    }

    /// Removes a request that has left.
    pub(crate) fn leave(&self, at: Timestamp, wait: Span) {
        let (mut starts, step) = (self.starts(), Starts::step(at, wait));
        if let Some(count) = starts.by_time.get_mut(&step) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                starts.by_time.remove(&step);
            }
        }
    }

    /// Records a request that waits in line for a slot.
    pub(crate) fn join_line(&self) {
        self.in_line.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a request from the line, with its wait if it got its slot.
    pub(crate) fn leave_line(&self, wait: Option<Span>) {
        self.in_line.fetch_sub(1, Ordering::Relaxed);
        if let Some(wait) = wait {
            let (waits, adder) = self.waits.mine();
            waits.put(&QUEUE_WAIT, wait.as_micros(), adder);
        }
    }

    /// Ends a step.
    pub(crate) fn end_step(&self, steps: u64) {
        let (waits, mut past) = (self.spread(), self.past());
        for _ in 0..steps.min(MAX_STEPS as u64) {
            past.push_back(waits);
        }
        let surplus = past.len().saturating_sub(MAX_STEPS);
        past.drain(..surplus);
    }

    /// Returns the distribution of all waits since the start.
    pub(crate) fn spread(&self) -> Spread<16> {
        Spread::of(self.waits.iter())
    }

    pub(crate) fn view(&self, now: Timestamp) -> QueueView {
        let before = self.before();
        let recent = self.spread().since(&before);
        let quantile = |percent| recent.quantile(&QUEUE_WAIT, percent).map(Span::from_micros);
        let waits = quantile(50).zip(quantile(99)).map(|(median, high)| [median, high]);
        let mut starts = self.starts();
        let ahead = starts.ahead;
        starts.forget_before(now.shifted(ahead));
        let waiting = starts.by_time.values().sum::<u64>() + self.in_line.load(Ordering::Relaxed);
        QueueView { waiting, waits }
    }

    /// Returns the waits up to five minutes ago. A counter that is younger has none.
    fn before(&self) -> Spread<16> {
        let past = self.past();
        if past.len() < MAX_STEPS { Spread::default() } else { past.front().copied().unwrap_or_default() }
    }

    fn starts(&self) -> MutexGuard<'_, Starts> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past(&self) -> MutexGuard<'_, VecDeque<Spread<16>>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_turn_has_come_and_those_who_left_do_not_wait() {
        let counter = QueueCounter::default();
        // The clock of the store is an hour ahead.
        let (at, now) = (Timestamp::from_secs(10_000), Timestamp::from_secs(6_400));
        for millis in [100, 200, 300, 400, 120_000] {
            counter.enter(at, Span::from_millis(millis), now);
        }
        assert_eq!(counter.view(now).waiting, 5);
        counter.leave(at, Span::from_millis(300));
        counter.leave(at, Span::from_millis(120_000));
        assert_eq!(counter.view(now).waiting, 3);
        assert_eq!(counter.view(now + Span::from_millis(210)).waiting, 1);
        assert_eq!(counter.view(now + Span::from_secs(1)).waiting, 0);
        counter.leave(at, Span::from_millis(400));
        let waits = counter.view(now).waits;
        assert_eq!(waits, Some([Span::from_millis(500), Span::from_minutes(5)]), "bounds of buckets");
        counter.end_step(1);
        assert_eq!(counter.view(now).waits, waits, "within the last five minutes");
        counter.end_step(MAX_STEPS as u64 - 2);
        assert_eq!(counter.view(now).waits, waits, "within the last five minutes");
        counter.end_step(1);
        assert_eq!(counter.view(now).waits, None, "five minutes ago");
        counter.end_step(2 * MAX_STEPS as u64);
        assert_eq!(counter.view(now).waits, None, "five minutes ago");
    }
}
