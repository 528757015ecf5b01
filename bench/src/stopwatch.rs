//! Reads clocks; the only module of the benchmarks that does.

use std::time::{Duration, Instant, SystemTime};

/// Returns the current time.
#[allow(clippy::disallowed_methods, reason = "measuring time is what this crate does")]
pub fn mark() -> Instant {
    Instant::now()
}

/// Runs a function, and returns its duration.
pub fn time<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = mark();
    let answer = run();
    (answer, start.elapsed())
}

/// Returns the wall clock time, for peers that take the time as an argument.
#[allow(clippy::disallowed_methods, reason = "a peer asks for it")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Returns the CPU time of this thread; zero if the kernel does not report it.
pub fn on_a_core() -> Duration {
    scheduled(0)
}

/// Returns the time that this thread was runnable without a core; zero if the kernel does not report it.
pub fn waited_for_a_core() -> Duration {
    scheduled(1)
}

fn scheduled(field: usize) -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    // Nanoseconds on a core, nanoseconds waiting for one, time slices.
    Duration::from_nanos(line.split(' ').nth(field).and_then(|it| it.parse().ok()).unwrap_or(0))
}

/// Sleeps for a moment, while another program makes progress.
#[allow(clippy::disallowed_methods, reason = "other programs have no clock that could be moved")]
pub fn pause(moment: Duration) {
    std::thread::sleep(moment);
}
