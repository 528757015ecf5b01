//! How far the clock of a server is ahead of this process.
//!
//! A `Date` header has whole seconds, rounded down, and was written between the sending of the request and the receipt
//! of the response. Each response therefore bounds the offset from both sides. The intersection of the bounds narrows
//! to the round-trip time within a few seconds of traffic. Bounds that contradict the earlier ones replace them: one of
//! the clocks was set.

use tollgate::Timestamp;

const SECOND_US: i64 = 1_000_000;
/// The tolerance for the drift of clocks and for servers that cache the text of their date.
const TOLERANCE_US: i64 = 20_000;

/// Bounds of the offset of a server's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    min: i64,
    max: i64,
}

impl ClockOffset {
    /// Creates bounds from one response: the time of its `Date`, and the local times at which its request was sent and
    /// its head received.
    pub(crate) const fn observed(date: Timestamp, sent: Timestamp, received: Timestamp) -> Self {
        Self { min: date.ahead_of(received), max: date.ahead_of(sent).saturating_add(SECOND_US) }
    }

    /// Narrows the bounds by another observation.
    pub(crate) fn narrow(&mut self, other: Self) {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        *self = if min <= max.saturating_add(TOLERANCE_US) {
            Self { min: min.min(max), max: max.max(min) }
        } else {
            other
        };
    }

    /// Returns the local time of a time of the server's clock. It is not earlier than the server means, as far as the
    /// bounds tell.
    pub(crate) fn local(&self, server: Timestamp) -> Timestamp {
        server.shifted(self.min.saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use tollgate::Span;

    use super::*;

    #[test]
    fn the_bounds_narrow_and_a_local_time_is_never_early() {
        let (mut offset, ahead) = (None::<ClockOffset>, 3_600_123_456_i64);
        let start = Timestamp::from_secs(1_000_000);
        for step in 0..40 {
            let sent = start + Span::from_millis(step * 97);
            let received = sent + Span::from_millis(10);
            let server = (sent + Span::from_millis(5)).shifted(ahead);
            let date = Timestamp::from_secs(server.as_micros() / 1_000_000);
            let seen = ClockOffset::observed(date, sent, received);
            offset.get_or_insert(seen).narrow(seen);
            let reset = Timestamp::from_secs(2_000_000);
            let local = offset.unwrap().local(reset);
            assert!(local >= reset.shifted(-ahead), "step {step}");
        }
        let late = offset.unwrap().local(Timestamp::from_secs(2_000_000));
        let error = late.since(Timestamp::from_secs(2_000_000).shifted(-ahead));
        assert!(error < Span::from_millis(120), "{error:?}");
    }

    #[test]
    fn a_clock_that_was_set_replaces_the_bounds() {
        let at = Timestamp::from_secs(5_000);
        let mut offset = ClockOffset::observed(at, at, at);
        offset.narrow(ClockOffset::observed(Timestamp::from_secs(9_000), at, at));
        assert_eq!(offset.local(Timestamp::from_secs(9_000)), at);
        offset.narrow(ClockOffset::observed(Timestamp::EPOCH, at, at));
        assert_eq!(offset.local(Timestamp::EPOCH), at);
    }
}
