//! Logs one line for each refusal, at a limited rate.
//!
//! The main thread writes the lines from the records of the watcher, so a request never waits for the
//! log. Suppressed lines are counted, and reported in one line per second.
//!
//! Escaping is in `plain`, reading the records in `record_consumer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Timestamp;
use tollgate_telemetry::{Record, RecordHead};
use tracing::field::{DisplayValue, display};

use crate::configuration::{LogFormat, Refusals};
use crate::plain::Plain;

/// Logs refusals.
pub(crate) struct RefusalLog {
    most: Refusals,
    format: LogFormat,
    /// The second of `written` and `left_out`.
    second: u64,
    written: u32,
    left_out: u64,
    /// The refusals since the start that were read, or that were evicted before.
    seen: u64,
    forgotten: u64,
    suppressed: Arc<AtomicU64>,
}

impl RefusalLog {
    /// Creates the log; `suppressed` counts suppressed lines. `None` if refusals are not logged.
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

    /// Counts a refusal, and returns whether to [`write`](Self::write) it. Otherwise it counts as suppressed. Ignores
    /// admitted requests.
    pub(crate) fn count(&mut self, head: &RecordHead) -> bool {
        if head.allowed {
            return false;
        }
        self.seen += 1;
        let is_written = self.may_write();
        if is_written {
            self.written += 1;
        } else {
            self.leave_out(1);
        }
        is_written
    }

    /// Logs a refusal.
    pub(crate) fn write(&self, record: &Record) {
        write(record, self.format);
    }

    /// Counts refusals that were evicted before they were read: those of the `refused` since the start
    /// that were not seen.
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

    /// Reports the suppressed lines of the last second when it has ended.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        let second = now.as_micros() / 1_000_000;
        if second != self.second {
            self.second = second;
            self.end();
        }
    }

    /// Reports the suppressed lines so far.
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
        priority = record.priority.as_deref().map(shown),
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
    fn each_evicted_refusal_counts_once() {
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
