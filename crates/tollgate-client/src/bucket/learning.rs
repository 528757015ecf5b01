//! Learns the numbers of a bucket from responses: its rate, its shape and the end of its window.

use tollgate::{Span, Timestamp};

use super::{Bucket, Observation, Ticket, span_us};
use crate::headers::Shape;

/// The time by which the reset of a window may differ between two responses.
const RESET_TOLERANCE: Span = Span::from_millis(1_500);
const PRECISE_RESET_TOLERANCE: Span = Span::from_millis(50);

impl Bucket {
    /// Learns everything but the level. Returns the remaining units.
    pub(super) fn learn_numbers(&mut self, seen: &Observation) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)] // estimates
        let (limit, remaining) = (seen.limit.map(|it| it as f64), seen.remaining.map(|it| it as f64));
        self.limit = limit.or(self.limit);
        if let Some(window) = seen.window.filter(|it| !it.is_zero()) {
            (self.window, self.is_window_reported) = (Some(window), true);
        }
        self.shape = self.shape.or(seen.shape);
        remaining
    }

    pub(super) fn estimate_rate(&mut self, seen: &Observation, remaining: Option<f64>, now: Timestamp) {
        if let (Some(limit), Some(window), true) = (self.limit, self.window, self.is_window_reported) {
            self.rate = Some((limit / span_us(window)).max(f64::MIN_POSITIVE));
        } else if let (Some(limit), Some(remaining), Some(reset)) = (self.limit, remaining, seen.reset_at)
            && self.shape == Some(Shape::Refill)
            && limit > remaining
        {
            // The reset is rounded up and the remaining units down, so that this is at most the rate.
            let rate = (limit - remaining - 1.0) / span_us(reset.since(now)).max(1_000.0);
            if rate > 0.0 {
                self.rate = Some(self.rate.map_or(rate, |known| known.max(rate)));
            }
        }
    }

    /// Recognizes a bucket that refills.
    pub(super) fn watch_shape(&mut self, remaining: f64, uncertain: f64, seen: &Observation, now: Timestamp) {
        let (Some(level), Some(old), None) = (self.level, self.reset_at, self.unconfirmed) else { return };
        if self.shape == Some(Shape::Refill) || seen.shape.is_some() || old <= now + tolerance(seen) {
            return;
        }
        let moved = seen.reset_at.is_some_and(|new| new > old + tolerance(seen));
        let risen = remaining - uncertain > level + 3.0 + 0.05 * self.limit.unwrap_or(0.0);
        if (moved && remaining <= level + uncertain) || (risen && uncertain == 0.0) {
            self.shape = Some(Shape::Refill);
            self.estimate_rate(seen, Some(remaining), now);
        }
    }

    pub(super) fn report_window(
        &mut self,
        ticket: &Ticket,
        remaining: f64,
        uncertain: f64,
        seen: &Observation,
        now: Timestamp,
    ) {
        if seen.reset_mark.is_some_and(|mark| self.window_end.is_past(mark, ticket.sent_at)) {
            return;
        }
        let is_later = seen.reset_mark.and_then(|mark| self.window_end.is_later(mark));
        let is_new = match (is_later, self.reset_at, seen.reset_at) {
            (Some(is_later), ..) => is_later,
            (None, Some(old), Some(new)) if new + tolerance(seen) < old => return,
            (None, Some(old), Some(new)) => new > old + tolerance(seen),
            _ => true,
        };
        // A response to a call of the window before says nothing about this one.
        if is_later != Some(true) && self.unconfirmed.is_some_and(|first| ticket.number < first) {
            return;
        }
        let is_known = !is_new && self.unconfirmed.is_none();
        self.min_seen = if is_known { self.min_seen.min(remaining) } else { remaining };
        self.level = Some(match self.level {
            // Every call was counted before one of the responses.
            _ if self.in_flight == 0 => self.min_seen,
            Some(level) if is_known => level.clamp(remaining - uncertain, remaining),
            _ => remaining - f64::from(self.in_flight) * self.average_cost,
        });
        let is_first = self.limit.is_some_and(|limit| remaining + ticket.cost >= limit);
        self.reset_at = if let (Some(mark), Some(announced)) = (seen.reset_mark, seen.reset_at) {
            let jitter_us = self.jitter.spread_us();
            self.window_end.observe((mark, announced), (ticket.sent_at, is_first), (jitter_us, now));
            self.window_end.end(jitter_us)
        } else {
            match (self.reset_at.filter(|_| !is_new), seen.reset_at) {
                // Both are rounded up: the earlier one is closer.
                (Some(old), Some(new)) => Some(old.min(new)),
                (old, new) => new.or(old),
            }
        };
        if is_new {
            self.window_pace.restart();
        }
        if is_first {
            self.learn_window(seen, now);
        }
        (self.unconfirmed, self.probe_sent) = (None, None);
    }

    /// Learns the length of the window from the response to its first call.
    pub(super) fn learn_window(&mut self, seen: &Observation, now: Timestamp) {
        let length = self.reset_at.map(|reset| reset.since(now)).filter(|length| !length.is_zero());
        if seen.window.is_none() {
            self.window = self.window_end.length().or(length).or(self.window);
        }
    }
}

/// Returns the difference of two resets that may be one.
pub(super) fn tolerance(seen: &Observation) -> Span {
    if seen.is_precise { PRECISE_RESET_TOLERANCE } else { RESET_TOLERANCE }
}
