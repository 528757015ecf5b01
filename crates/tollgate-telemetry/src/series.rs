//! The counts of the last five minutes, second by second.
//!
//! Ticks come from a timer and from readers. Counts since the last tick belong to the second of that
//! tick; counts from now on belong to the current second, which is the last element. Seconds without a
//! tick are zero. If the clock steps back, seconds get new timestamps and keep their order.
//!
//! Invariant: a tick takes the same time however long ago the last one was, and visits the limits once
//! in [`STEP_SECS`] seconds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Span, Timestamp};

use crate::counts::{Counters, Counts};
use crate::histogram::{LATENCY, Spread};
use crate::history::{LimitSeries, LimitWindow, STEP_SECS};
use crate::window::window_start;

/// The number of seconds that are kept.
const KEPT_SECONDS: usize = 300;
/// The number of steps in the latency window of one minute.
const LATENCY_STEPS: usize = 12;

/// The counts of all decisions, second by second, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The second of the last element, since 1970. That second is still in progress.
    pub until: u64,
    /// The sums of the last five minutes, over the window that all other counts use.
    pub window: WindowCounts,
    /// Admitted.
    pub allowed: Vec<u32>,
    /// Refused for any reason.
    pub refused: Vec<u32>,
    /// Admitted, although a limit in shadow mode would have refused.
    pub shadow_limited: Vec<u32>,
    /// Decided without the store.
    pub degraded: Vec<u32>,
}

/// The counts of decisions in the last five minutes, including the current second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// The first second of the window, since 1970.
    pub from: u64,
    /// Admitted.
    pub allowed: u64,
    /// Refused for any reason.
    pub refused: u64,
    /// Admitted, although a limit in shadow mode would have refused.
    pub shadow_limited: u64,
    /// Decided without the store.
    pub degraded: u64,
}

/// The recent history of all decisions.
pub(crate) struct History(Mutex<SeriesState>);

struct SeriesState {
    /// The second of the last tick.
    second: Option<u64>,
    /// The counts at the last tick.
    before: [u64; 4],
    /// The increments of each second, the oldest first and the current one last.
    seconds: VecDeque<[u32; 4]>,
    /// The number of the current step, counted from 1970.
    step: u64,
    latency_before: Spread<20>,
    latency: VecDeque<Spread<20>>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(SeriesState {
            second: None,
            before: [0; 4],
            seconds: VecDeque::from([[0; 4]; KEPT_SECONDS]),
            step: 0,
            latency_before: Spread::default(),
            latency: VecDeque::from([Spread::default(); LATENCY_STEPS]),
        }))
    }

    /// Advances to `now`. Returns the number of limits that were visited.
    pub(crate) fn tick(&self, now: Timestamp, counters: &Counters) -> usize {
        let mut past = self.past();
        let second = now.as_micros() / 1_000_000;
        past.add(series_of(&counters.total()));
        let step = second / STEP_SECS;
        // Counts from before the first tick belong to the current second.
        let (seconds, steps) =
            past.second.map_or((0, 0), |last| (passed(last, second), passed(past.step, step)));
        (past.second, past.step) = (Some(second), step);
        past.begin_seconds(seconds);
        if steps == 0 {
            return 0;
        }
        past.push_latency(steps, counters.latency());
        let limits = counters.limits();
        for limit in &limits {
            limit.step(steps);
        }
        limits.len()
    }

    /// Returns the counts of the last five minutes, up to the last tick.
    pub(crate) fn series(&self) -> Series {
        let past = self.past();
        let of = |at: usize| past.seconds.iter().map(|second| second[at]).collect();
        Series {
            until: past.second.unwrap_or(0),
            window: past.window(),
            allowed: of(0),
            refused: of(1),
            shadow_limited: of(2),
            degraded: of(3),
        }
    }

    /// Returns the recent history of one limit.
    pub(crate) fn limit_series(&self, name: &str, counters: &Counters) -> Option<LimitSeries> {
        let past = self.past();
        Some(counters.limit(name)?.series(past.second.unwrap_or(0)))
    }

    /// Returns the counts of one limit in the last five minutes.
    pub(crate) fn limit_window(&self, name: &str, counters: &Counters) -> Option<LimitWindow> {
        let past = self.past();
        let over = past.step.saturating_sub(window_start(past.second.unwrap_or(0)) / STEP_SECS);
        Some(counters.limit(name)?.window(usize::try_from(over).unwrap_or(usize::MAX)))
    }

    /// Returns the 50th, 90th and 99th percentile of decision latency in the last minute; `None` if
    /// there were no decisions.
    pub(crate) fn latency(&self, counters: &Counters) -> Option<[Span; 3]> {
        let past = self.past();
        let since = counters.latency().since(&past.latency_before);
        let all = past.latency.iter().fold(since, |sum, step| sum.plus(step));
        let [p50, p90, p99] =
            [50, 90, 99].map(|percent| all.quantile(&LATENCY, percent).map(Span::from_micros));
        Some([p50?, p90?, p99?])
    }

    fn past(&self) -> MutexGuard<'_, SeriesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of units that have passed, or one if the clock stepped back.
fn passed(last: u64, now: u64) -> u64 {
    if now < last { 1 } else { now - last }
}

/// Selects the counts that the series shows.
fn series_of(counts: &Counts) -> [u64; 4] {
    let allowed = counts.allowed + counts.unlimited;
    let refused = counts.refused();
    [allowed, refused, counts.shadow_limited, counts.degraded]
}

impl SeriesState {
    /// Adds the increments since the last call to the current second.
    fn add(&mut self, counts: [u64; 4]) {
        let before = std::mem::replace(&mut self.before, counts);
        let Some(present) = self.seconds.back_mut() else { return };
        for (at, sum) in present.iter_mut().enumerate() {
            let added = u32::try_from(counts[at].saturating_sub(before[at])).unwrap_or(u32::MAX);
            *sum = sum.saturating_add(added);
        }
    }

    /// Starts `count` new seconds.
    fn begin_seconds(&mut self, count: u64) {
        push(&mut self.seconds, count, [0; 4], [0; 4]);
    }

    fn window(&self) -> WindowCounts {
        let second = self.second.unwrap_or(0);
        let from = window_start(second);
        let seconds = usize::try_from(second - from + 1).unwrap_or(KEPT_SECONDS);
        let skipped = self.seconds.len().saturating_sub(seconds);
        let sum = |at: usize| self.seconds.iter().skip(skipped).map(|it| u64::from(it[at])).sum();
        WindowCounts { from, allowed: sum(0), refused: sum(1), shadow_limited: sum(2), degraded: sum(3) }
    }

    fn push_latency(&mut self, passed: u64, latency: Spread<20>) {
        let before = std::mem::replace(&mut self.latency_before, latency);
        push(&mut self.latency, passed, Spread::default(), latency.since(&before));
    }
}

/// Appends `last` after `passed - 1` copies of `nothing`, and removes as many elements from the front.
fn push<T: Copy>(ring: &mut VecDeque<T>, passed: u64, nothing: T, last: T) {
    let passed = usize::try_from(passed).unwrap_or(ring.len()).min(ring.len());
    for at in 1..=passed {
        ring.pop_front();
        ring.push_back(if at == passed { last } else { nothing });
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use tollgate::Policy;

    use super::*;
    use crate::limit_counter::Field;
    use crate::stripes::Striped;

    fn counters(limits: usize) -> Counters {
        let mut policy = "limits:\n".to_owned();
        for at in 0..limits {
            writeln!(policy, "  - {{name: limit-{at}, by: ip, bucket: 1/s}}").unwrap();
        }
        let counters = Counters::new();
        counters.of(&Policy::parse(&policy).unwrap());
        counters
    }

    #[test]
    fn limits_are_visited_once_in_five_seconds_and_once_after_a_year() {
        let (history, counters) = (History::new(), counters(2000));
        let looked = |second| history.tick(Timestamp::from_secs(second), &counters);
        looked(1_000_000);
        let each: Vec<_> = (1_000_001..=1_000_010).map(looked).collect();
        assert_eq!(each, [0, 0, 0, 0, 2001, 0, 0, 0, 0, 2001]);
        assert_eq!(looked(32_000_000), 2001);
        assert_eq!((looked(32_000_000), looked(7), looked(8)), (0, 2001, 0));
    }

    #[test]
    fn a_limit_without_requests_takes_no_memory_for_its_history() {
        let (history, counters) = (History::new(), counters(1));
        let limit = counters.limit("limit-0").unwrap();
        history.tick(Timestamp::from_secs(100), &counters);
        assert!(!limit.past().is_kept());
        limit.record(Striped::<()>::new().current(), Field::Allowed, 500);
        history.tick(Timestamp::from_secs(105), &counters);
        assert!(limit.past().is_kept());
        history.tick(Timestamp::from_secs(400), &counters);
        assert!(limit.past().is_kept());
        history.tick(Timestamp::from_secs(405), &counters);
        assert!(!limit.past().is_kept());
    }
}
