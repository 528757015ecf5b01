//! Log lines about outages, and their rate.
//!
//! One line is written when the breaker opens and one when the store answers again. Between them,
//! new causes are logged: the first symptom is often only a broken connection, and the cause (such
//! as a changed password) appears with the next attempt. A reminder follows every minute, for
//! readers of recent logs.
//!
//! A flapping store must not flood the log: suppressed outages are counted, and the next line has
//! their number.
//!
//! Time is an argument; lines are written after the lock is released.

use tollgate_core::{Span, Timestamp};

/// The minimum time between two logged outages, and between two causes of one.
const OUTAGE_LOG_INTERVAL: Span = Span::from_secs(10);
/// The minimum time between two reminders, and between two warnings of one kind.
pub(super) const REMINDER_INTERVAL: Span = Span::from_secs(60);

/// The state of the outage log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The current outage, if any.
    outage: Option<Outage>,
    /// The time at which the start of an outage was last logged.
    logged_at: Option<Timestamp>,
    /// The number of outages suppressed since then.
    suppressed: u64,
}

#[derive(Debug)]
struct Outage {
    since: Timestamp,
    /// The number of degraded decisions before it.
    decisions_before: u64,
    /// The last report about it.
    last_report: Option<LastReport>,
}

#[derive(Debug)]
struct LastReport {
    cause: String,
    at: Timestamp,
    /// The time at which a later cause was logged.
    other_cause_at: Option<Timestamp>,
}

/// A log line.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Opened { error: String, suppressed: u64 },
    StillOpen { error: String, lasted: Span, decisions: u64 },
    Closed { lasted: Span, decisions: u64, keys_to_charge: usize },
}

impl Log {
    /// Records that the breaker opened, after `decisions` degraded decisions.
    pub(super) fn opened(&mut self, cause: &str, decisions: u64, now: Timestamp) -> Option<Line> {
        self.outage = Some(Outage { since: now, decisions_before: decisions, last_report: None });
        self.report(cause, now)
    }

    /// Records that the store failed while the breaker was already open.
    pub(super) fn still_open(&mut self, cause: &str, decisions: u64, now: Timestamp) -> Option<Line> {
        let outage = self.outage.as_mut()?;
        let Some(last_report) = &mut outage.last_report else { return self.report(cause, now) };
        let is_due = |at: Timestamp, wait: Span| now.since(at) >= wait;
        let is_new = last_report.cause != cause
            && last_report.other_cause_at.is_none_or(|at| is_due(at, OUTAGE_LOG_INTERVAL));
        if !is_new && !is_due(last_report.at, REMINDER_INTERVAL) {
            return None;
        }
        if is_new {
            last_report.other_cause_at = Some(now);
        }
        cause.clone_into(&mut last_report.cause);
        last_report.at = now;
        Some(Line::StillOpen {
            error: cause.to_owned(),
            lasted: now.since(outage.since),
            decisions: decisions - outage.decisions_before,
        })
    }

    /// Records that the breaker closed.
    pub(super) fn closed(&mut self, decisions: u64, keys_to_charge: usize, now: Timestamp) -> Option<Line> {
        let outage = self.outage.take()?;
        if outage.last_report.is_none() {
            self.suppressed += 1;
            return None;
        }
        Some(Line::Closed {
            lasted: now.since(outage.since),
            decisions: decisions - outage.decisions_before,
            keys_to_charge,
        })
    }

    /// Reports the current outage, unless another was logged recently.
    fn report(&mut self, cause: &str, now: Timestamp) -> Option<Line> {
        let outage = self
            .outage
            .as_mut()
            .filter(|_| self.logged_at.is_none_or(|at| now.since(at) >= OUTAGE_LOG_INTERVAL))?;
        outage.last_report = Some(LastReport { cause: cause.to_owned(), at: now, other_cause_at: None });
        self.logged_at = Some(now);
        let suppressed = std::mem::take(&mut self.suppressed);
        Some(Line::Opened { error: cause.to_owned(), suppressed })
    }
}

impl Line {
    pub(super) fn write(self) {
        match self {
            Self::Opened { error, suppressed: 0 } => tracing::warn!(
                error,
                "the store gives no answers; the breaker is open and limits apply their `on_outage`"
            ),
            Self::Opened { error, suppressed } => tracing::warn!(
                error,
                outages_not_told = suppressed,
                "the store gives no answers; the breaker is open and limits apply their `on_outage`"
            ),
            Self::StillOpen { error, lasted, decisions } => {
                tracing::warn!(
                    error,
                    seconds = seconds(lasted),
                    decisions,
                    "the store still gives no answers"
                );
            }
            Self::Closed { lasted, decisions, keys_to_charge } => tracing::info!(
                seconds = seconds(lasted),
                decisions,
                keys_to_charge,
                "the store answers again; the breaker is closed"
            ),
        }
    }
}

/// Returns the seconds, rounded to the nearest millisecond.
#[allow(clippy::cast_precision_loss, reason = "exact below 285,000 years")]
fn seconds(span: Span) -> f64 {
    // One division, so that the result prints with three decimal places.
    (span.as_micros().saturating_add(500) / 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_secs(1_000) + Span::from_millis(millis)
    }

    fn opened(error: &str, suppressed: u64) -> Line {
        Line::Opened { error: error.to_owned(), suppressed }
    }

    fn still_open(error: &str, millis: u64) -> Line {
        Line::StillOpen { error: error.to_owned(), lasted: Span::from_millis(millis), decisions: 3 }
    }

    #[test]
    fn a_new_cause_is_logged_immediately_and_then_at_most_every_ten_seconds() {
        let mut log = Log::default();
        assert_eq!(log.opened("broken pipe", 4, at(0)), Some(opened("broken pipe", 0)));
        assert_eq!(log.still_open("broken pipe", 7, at(100)), None);
        assert_eq!(log.still_open("no password", 7, at(200)), Some(still_open("no password", 200)));
        assert_eq!(log.still_open("broken pipe", 7, at(300)), None);
        assert_eq!(log.still_open("no password", 7, at(10_300)), None, "this cause was logged");
        assert_eq!(log.still_open("broken pipe", 7, at(10_400)), Some(still_open("broken pipe", 10_400)));
        let closed = Line::Closed { lasted: Span::from_secs(11), decisions: 6, keys_to_charge: 2 };
        assert_eq!(log.closed(10, 2, at(11_000)), Some(closed));
    }

    #[test]
    fn a_long_outage_is_logged_again_every_minute() {
        let mut log = Log::default();
        log.opened("gone", 0, at(0));
        let lines = (1..=600).filter(|second| log.still_open("gone", 3, at(second * 1_000)).is_some());
        assert_eq!(lines.count(), 10);
    }

    #[test]
    fn a_flapping_store_is_logged_once_in_ten_seconds_with_a_count() {
        let mut log = Log::default();
        let (mut openings, mut closings, mut suppressed) = (0, 0, 0);
        for second in 0..100 {
            if let Some(Line::Opened { suppressed: more, .. }) = log.opened("gone", 0, at(second * 1_000)) {
                openings += 1;
                suppressed += more;
            }
            closings += u64::from(log.closed(0, 0, at(second * 1_000 + 500)).is_some());
        }
        assert_eq!((openings, closings, suppressed), (10, 10, 81));
    }

    #[test]
    fn a_suppressed_outage_that_lasts_is_logged_late() {
        let mut log = Log::default();
        log.opened("gone", 0, at(0));
        assert!(log.closed(0, 0, at(1_000)).is_some());
        assert_eq!(log.opened("gone", 0, at(2_000)), None);
        assert_eq!(log.closed(0, 0, at(2_500)), None);
        assert_eq!(log.opened("gone", 0, at(3_000)), None);
        assert_eq!(log.still_open("gone", 0, at(9_999)), None);
        assert_eq!(log.still_open("gone", 0, at(10_000)), Some(opened("gone", 1)));
        let closed = Line::Closed { lasted: Span::from_secs(9), decisions: 5, keys_to_charge: 0 };
        assert_eq!(log.closed(5, 0, at(12_000)), Some(closed), "from its beginning");
    }

    #[test]
    fn seconds_have_three_decimal_places() {
        let written = [1_234_567, 999, 400].map(|micros| seconds(Span::from_micros(micros)).to_string());
        assert_eq!(written, ["1.235", "0.001", "0"]);
    }
}
