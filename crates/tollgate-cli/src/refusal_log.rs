//! One line in the log for each refusal, and no more of them than the settings say.
//!
//! Lines come from the main thread, from what the watcher remembers: a request never
//! waits for a log. What gets no line is counted, and told in one line a second.
//!
//! Not here: making a caller's text harmless (`plain`), fetching the records (`record_consumer`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Timestamp;
use tollgate_telemetry::Record;
use tracing::field::{DisplayValue, display};

use crate::configuration::{LogFormat, Refusals};
use crate::plain::Plain;

/// Writes lines about refusals.
pub(crate) struct RefusalLog {
    most: Refusals,
    format: LogFormat,
    /// The second that `written` and `left_out` are of.
    second: u64,
    written: u32,
    left_out: u64,
    /// Refusals that were looked at, and those that were forgotten before, since the start.
    seen: u64,
    forgotten: u64,
    suppressed: Arc<AtomicU64>,
}

impl RefusalLog {
    /// `suppressed` counts what gets no line. `None`: nothing is to be written.
    pub(crate) fn new(most: Refusals, format: LogFormat, suppressed: Arc<AtomicU64>) -> Option<Self> {
        let is_off = most == Refusals::Off || !tracing::enabled!(tracing::Level::INFO);
        (!is_off).then_some(Self {
            most,
            format,
            second: 0,
            written: 0,
            left_out: 0,
            seen: 0,
            forgotten: 0,
            suppressed,
        })
    }

    /// Writes a line, or counts it. Requests that passed are no business of this log.
    pub(crate) fn see(&mut self, record: &Record) {
        if record.allowed {
            return;
        }
        self.seen += 1;
        if self.may_write() {
            self.written += 1;
            write(record, self.format);
        } else {
            self.leave_out(1);
        }
    }

    /// So many were refused since the start, and none of them is left to look at: those that
    /// were not seen were forgotten before anybody came.
    pub(crate) fn miss(&mut self, refused: u64) {
        let forgotten = refused.saturating_sub(self.seen);
        if let Some(more) = forgotten.checked_sub(self.forgotten) {
            self.forgotten = forgotten;
            self.leave_out(more);
        }
    }

    fn leave_out(&mut self, count: u64) {
        self.left_out += count;
        self.suppressed.fetch_add(count, Ordering::Relaxed);
    }

    /// Time passes: tells what got no line in the second before.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        let second = now.as_micros() / 1_000_000;
        if second != self.second {
            self.second = second;
            self.end();
        }
    }

    /// Tells what got no line so far.
    pub(crate) fn end(&mut self) {
        self.written = 0;
        let count = std::mem::take(&mut self.left_out);
        if count > 0 {
            tracing::info!(count, "and {count} more refusals not logged (log.refusals)");
        }
    }

    fn may_write(&self) -> bool {
        match self.most {
            Refusals::All => true,
            Refusals::Off => false,
            Refusals::PerSecond(most) => self.written < most.get(),
        }
    }
}

fn write(record: &Record, format: LogFormat) {
    let shown = |text: &'_ str| -> DisplayValue<String> { display(Plain::new(text, format).to_string()) };
    let limiting = record.limiting.and_then(|at| record.limits.get(at));
    tracing::info!(
        id = %record.id,
        fate = record.fate.as_str(),
        limit = record.limit.as_deref().map(shown),
        window = limiting.and_then(|it| it.window.as_deref()).map(shown),
        key = limiting.map(|it| shown(&it.key)),
        tag = record.tag.map(|tag| display(format!("{tag:016x}"))),
        algorithm = limiting.map(|it| it.quota.algorithm()),
        capacity = limiting.map(|it| it.outcome.limit),
        remaining = limiting.map(|it| it.outcome.remaining),
        retry_after_ms = record.retry_after.map(|it| it.as_micros().div_ceil(1000)),
        method = Some(&*record.method).filter(|it| !it.is_empty()).map(shown),
        path = Some(&*record.path).filter(|it| !it.is_empty()).map(shown),
        client = record.client.as_deref().map(shown),
        degraded = record.degraded,
        policy_version = record.policy_version,
        "refused"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_that_were_forgotten_count_and_each_once() {
        let suppressed = Arc::new(AtomicU64::new(0));
        let mut log = RefusalLog {
            most: Refusals::All,
            format: LogFormat::Human,
            second: 0,
            written: 0,
            left_out: 0,
            seen: 10,
            forgotten: 0,
            suppressed: Arc::clone(&suppressed),
        };
        for (refused, expected) in [(10, 0), (13, 3), (13, 3), (12, 3), (14, 4)] {
            log.miss(refused);
            assert_eq!(suppressed.load(Ordering::Relaxed), expected, "{refused}");
        }
        assert_eq!(log.left_out, 4);
    }
}
