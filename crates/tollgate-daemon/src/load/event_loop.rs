//! The delay of the event loops: the time for which a ready task waits until its thread runs it.
//!
//! Each worker thread has a task that sleeps for a fixed time and measures how late it wakes up. A request
//! that arrives in the meantime waits as long: the delay stands for the time that requests wait for a
//! worker. A thread that is blocked does not wake its task at all, so the sampler counts the time since
//! the task was due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Clock, SystemClock};

/// The interval between two measurements.
const BEAT_INTERVAL: Duration = Duration::from_millis(20);
/// The interval at which an unused task looks whether it is needed.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// The event loops of all worker threads. Clones share their state.
#[derive(Clone)]
pub(crate) struct EventLoops(Arc<Inner>);

struct Inner {
    clock: SystemClock,
    is_needed: AtomicBool,
    loops: Vec<EventLoop>,
}

/// The measurements of one thread.
#[derive(Default)]
struct EventLoop {
    /// The time at which the task is due, in microseconds; zero while it does not measure.
    due: AtomicU64,
    /// The longest delay since the last sample, in microseconds.
    longest: AtomicU64,
}

impl EventLoops {
    pub(crate) fn new(threads: usize) -> Self {
        let loops = (0..threads).map(|_| EventLoop::default()).collect();
        Self(Arc::new(Inner { clock: SystemClock::new(), is_needed: AtomicBool::new(false), loops }))
    }

    /// Measures the delay of the current thread until the future is dropped.
    pub(crate) async fn measure(self, thread: usize) {
        let Some(measured) = self.0.loops.get(thread) else { return };
        loop {
            if !self.0.is_needed.load(Ordering::Relaxed) {
                measured.due.store(0, Ordering::Relaxed);
                sleep(IDLE_INTERVAL).await;
                continue;
            }
            let due = self.now() + micros(BEAT_INTERVAL);
            measured.due.store(due, Ordering::Relaxed);
            sleep(BEAT_INTERVAL).await;
            measured.longest.fetch_max(self.now().saturating_sub(due), Ordering::Relaxed);
        }
    }

    /// Returns the longest delay of any thread since the last call; `None` before the first measurement.
    pub(crate) fn sample(&self) -> Option<Duration> {
        let was_needed = self.0.is_needed.swap(true, Ordering::Relaxed);
        let now = self.now();
        let delays = self.0.loops.iter().filter_map(|it| {
            let longest = it.longest.swap(0, Ordering::Relaxed);
            let due = it.due.load(Ordering::Relaxed);
            (due > 0).then(|| longest.max(now.saturating_sub(due)))
        });
        delays.max().filter(|_| was_needed).map(Duration::from_micros)
    }

    /// Stops measuring until the next sample.
    pub(crate) fn rest(&self) {
        self.0.is_needed.store(false, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.clock.now().as_micros()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::yield_now;

    #[tokio::test]
    async fn a_blocked_thread_is_late_while_it_is_blocked_and_once_after_that() {
        let loops = EventLoops::new(1);
        assert_eq!(loops.sample(), None);
        let task = tokio::spawn(loops.clone().measure(0));
        while loops.sample().is_none() {
            yield_now().await;
        }
        // Blocks the only thread: its task is due in the meantime, and does not run.
        let blocked_at = loops.now();
        let mut longest = Duration::ZERO;
        while longest < Duration::from_millis(100) {
            longest = longest.max(loops.sample().unwrap_or_default());
            assert!(loops.now() - blocked_at < 60_000_000, "the delay is measured");
        }
        let mut after = Duration::ZERO;
        while after < Duration::from_millis(100) {
            yield_now().await;
            after = after.max(loops.sample().unwrap_or_default());
            assert!(loops.now() - blocked_at < 60_000_000, "the delay is reported when the task runs");
        }
        task.abort();
    }
}
