//! The events of a run: a hash of all of them, and the last ones as text.

use std::collections::VecDeque;
use std::fmt::{Arguments, Write as _};
use std::hash::{DefaultHasher, Hasher};

use super::clock::TrueTime;

/// The number of events that a report of a failure shows.
const MAX_LINES: usize = 50;

/// The events of a run.
pub(super) struct Trace {
    hasher: DefaultHasher,
    lines: VecDeque<String>,
    events: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { hasher: DefaultHasher::new(), lines: VecDeque::new(), events: 0 }
    }

    /// Records an event.
    pub(super) fn note(&mut self, now: TrueTime, event: Arguments<'_>) {
        let mut line = if self.lines.len() < MAX_LINES {
            String::new()
        } else {
            self.lines.pop_front().unwrap_or_default()
        };
        line.clear();
        let _never = write!(line, "{:>10} ms  {event}", Millis(now));
        self.hasher.write(line.as_bytes());
        self.events += 1;
        self.lines.push_back(line);
    }

    /// Returns the hash of all events so far.
    pub(super) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the last events as text.
    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

/// A time in milliseconds with three decimal places.
pub(super) struct Millis(pub(super) TrueTime);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000);
        match f.width() {
            Some(width) => write!(f, "{text:>width$}"),
            None => f.write_str(&text),
        }
    }
}
