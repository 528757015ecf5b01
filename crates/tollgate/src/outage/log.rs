//! What the log says of an outage, and how often.
//!
//! A line when the store is left alone and one when it answers again. Between them, what
//! has not been said yet: the first symptom is often only a broken connection, and the
//! cause (a password that is not right any more) comes with the next attempt. And a
//! reminder now and then, for whoever looks at the log of today.
//!
//! A store that comes and goes must not flood the log: what is passed over is counted,
//! and the next line says how often.
//!
//! Not here: clocks, locks. Time is an argument; lines are written when the lock is free.

use tollgate_core::{Span, Timestamp};

/// Between two outages that are told of, and between two causes of one.
const OUTAGE_LOG_INTERVAL: Span = Span::from_secs(10);
/// Between two reminders, and two warnings of one kind.
pub(super) const REMINDER_INTERVAL: Span = Span::from_secs(60);

/// What has been said so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The outage under way, if there is one.
    outage: Option<Outage>,
    /// When the beginning of an outage was last told.
    told: Option<Timestamp>,
    /// Outages since then that were passed over.
    passed_over: u64,
}

#[derive(Debug)]
struct Outage {
    since: Timestamp,
    /// Degraded decisions before it.
    decisions_before: u64,
    /// What was said of it.
    said: Option<LastReport>,
}

#[derive(Debug)]
struct LastReport {
    cause: String,
    at: Timestamp,
    /// When a cause was said that was not the first.
    other_cause_at: Option<Timestamp>,
}

/// A line of the log.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Opened { error: String, passed_over: u64 },
    StillOpen { error: String, lasted: Span, decisions: u64 },
    Closed { lasted: Span, decisions: u64, keys_to_charge: usize },
}

impl Log {
    /// The breaker has opened, after so many degraded decisions.
    pub(super) fn opened(&mut self, cause: &str, decisions: u64, now: Timestamp) -> Option<Line> {
        self.outage = Some(Outage { since: now, decisions_before: decisions, said: None });
        self.report(cause, now)
    }

    /// The store has failed, and the breaker was open already.
    pub(super) fn still_open(&mut self, cause: &str, decisions: u64, now: Timestamp) -> Option<Line> {
        let outage = self.outage.as_mut()?;
        let Some(said) = &mut outage.said else { return self.report(cause, now) };
        let is_due = |at: Timestamp, wait: Span| now.since(at) >= wait;
        let is_new =
            said.cause != cause && said.other_cause_at.is_none_or(|at| is_due(at, OUTAGE_LOG_INTERVAL));
        if !is_new && !is_due(said.at, REMINDER_INTERVAL) {
            return None;
        }
        if is_new {
            said.other_cause_at = Some(now);
        }
        cause.clone_into(&mut said.cause);
        said.at = now;
        Some(Line::StillOpen {
            error: cause.to_owned(),
            lasted: now.since(outage.since),
            decisions: decisions - outage.decisions_before,
        })
    }

    /// The breaker has closed.
    pub(super) fn closed(&mut self, decisions: u64, keys_to_charge: usize, now: Timestamp) -> Option<Line> {
        let outage = self.outage.take()?;
        if outage.said.is_none() {
            self.passed_over += 1;
            return None;
        }
        Some(Line::Closed {
            lasted: now.since(outage.since),
            decisions: decisions - outage.decisions_before,
            keys_to_charge,
        })
    }

    /// Tells of the outage under way, unless another was told of a moment ago.
    fn report(&mut self, cause: &str, now: Timestamp) -> Option<Line> {
        let outage = self
            .outage
            .as_mut()
            .filter(|_| self.told.is_none_or(|at| now.since(at) >= OUTAGE_LOG_INTERVAL))?;
        outage.said = Some(LastReport { cause: cause.to_owned(), at: now, other_cause_at: None });
        self.told = Some(now);
        let passed_over = std::mem::take(&mut self.passed_over);
        Some(Line::Opened { error: cause.to_owned(), passed_over })
    }
}

impl Line {
    pub(super) fn write(self) {
        match self {
            Self::Opened { error, passed_over: 0 } => tracing::warn!(
                error,
                "the store gives no answers and is left alone; limits do as their `on_outage` says"
            ),
            Self::Opened { error, passed_over } => tracing::warn!(
                error,
                outages_not_told = passed_over,
                "the store gives no answers and is left alone; limits do as their `on_outage` says"
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
                "the store answers again; decisions are its own again"
            ),
        }
    }
}

/// To the nearest millisecond.
#[allow(clippy::cast_precision_loss, reason = "an outage of 300,000 years is told of roughly")]
fn seconds(span: Span) -> f64 {
    // Divided once: the result is then the number that is written with three places.
    (span.as_micros().saturating_add(500) / 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_secs(1_000) + Span::from_millis(millis)
    }

    fn opened(error: &str, passed_over: u64) -> Line {
        Line::Opened { error: error.to_owned(), passed_over }
    }

    fn still_open(error: &str, millis: u64) -> Line {
        Line::StillOpen { error: error.to_owned(), lasted: Span::from_millis(millis), decisions: 3 }
    }

    #[test]
    fn a_new_cause_is_told_at_once_and_then_every_ten_seconds_at_most() {
        let mut log = Log::default();
        assert_eq!(log.opened("broken pipe", 4, at(0)), Some(opened("broken pipe", 0)));
        assert_eq!(log.still_open("broken pipe", 7, at(100)), None);
        assert_eq!(log.still_open("no password", 7, at(200)), Some(still_open("no password", 200)));
        assert_eq!(log.still_open("broken pipe", 7, at(300)), None);
        assert_eq!(log.still_open("no password", 7, at(10_300)), None, "that was said");
        assert_eq!(log.still_open("broken pipe", 7, at(10_400)), Some(still_open("broken pipe", 10_400)));
        let closed = Line::Closed { lasted: Span::from_secs(11), decisions: 6, keys_to_charge: 2 };
        assert_eq!(log.closed(10, 2, at(11_000)), Some(closed));
    }

    #[test]
    fn a_long_outage_is_told_of_again_every_minute() {
        let mut log = Log::default();
        log.opened("gone", 0, at(0));
        let told = (1..=600).filter(|second| log.still_open("gone", 3, at(second * 1_000)).is_some());
        assert_eq!(told.count(), 10);
    }

    #[test]
    fn a_store_that_comes_and_goes_is_told_of_once_in_ten_seconds_with_how_often() {
        let mut log = Log::default();
        let (mut openings, mut closings, mut passed_over) = (0, 0, 0);
        for second in 0..100 {
            if let Some(Line::Opened { passed_over: more, .. }) = log.opened("gone", 0, at(second * 1_000)) {
                openings += 1;
                passed_over += more;
            }
            closings += u64::from(log.closed(0, 0, at(second * 1_000 + 500)).is_some());
        }
        assert_eq!((openings, closings, passed_over), (10, 10, 81));
    }

    #[test]
    fn an_outage_that_was_passed_over_and_lasts_is_told_of_late() {
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
    fn seconds_have_three_places() {
        let told = [1_234_567, 999, 400].map(|micros| seconds(Span::from_micros(micros)).to_string());
        assert_eq!(told, ["1.235", "0.001", "0"]);
    }
}
