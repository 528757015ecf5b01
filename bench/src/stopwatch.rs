//! The one place here that reads a clock of its own.

use std::time::{Duration, Instant, SystemTime};

/// This very moment.
#[allow(clippy::disallowed_methods, reason = "measuring time is what this crate does")]
pub fn mark() -> Instant {
    Instant::now()
}

/// Runs something, and says how long it took.
pub fn time<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = mark();
    let answer = run();
    (answer, start.elapsed())
}

/// The wall clock, for peers that are handed the time.
#[allow(clippy::disallowed_methods, reason = "a peer asks for it")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// How long this thread was on a core, since it began; zero where the kernel does not say.
pub fn on_a_core() -> Duration {
    scheduled(0)
}

/// How long this thread could have run and had no core, since it began; zero
/// where the kernel does not say.
pub fn waited_for_a_core() -> Duration {
    scheduled(1)
}

fn scheduled(field: usize) -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    // Nanoseconds on a core, nanoseconds waiting for one, turns.
    Duration::from_nanos(line.split(' ').nth(field).and_then(|it| it.parse().ok()).unwrap_or(0))
}

/// Lets a moment pass, while another program gets somewhere.
#[allow(clippy::disallowed_methods, reason = "other programs have no clock that could be moved")]
pub fn pause(moment: Duration) {
    std::thread::sleep(moment);
}
