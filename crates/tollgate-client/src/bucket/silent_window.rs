//! A limit that refuses and reports no numbers, with windows of one second: the global limits of Discord and Stripe.
//!
//! The calls before the first refused one, within a second, are the limit. From then on at most that many calls are sent
//! in any second, which no alignment of the server's windows refuses. A refusal against the prediction first makes the
//! second longer, because calls come closer on their way, and then the number smaller.

use std::collections::VecDeque;

use tollgate::{Span, Timestamp};

use super::Ready;

const PERIOD: Span = Span::from_secs(1);
/// The time that is added to the second: at first, with each refusal, and at the most.
const MARGIN: (Span, Span, Span) = (Span::from_millis(15), Span::from_millis(10), Span::from_millis(55));
/// The time without a refusal after which a larger limit is tried: at first, and at the most.
const GROWTH_INTERVAL: (Span, Span) = (Span::from_secs(60), Span::from_hours(1));
/// The most calls that are remembered. A limit above this is not paced.
const MAX_CALLS: usize = 10_000;

/// The calls of the last seconds, and the limit that follows from refusals.
#[derive(Clone, Debug)]
pub(super) struct SilentWindow {
    /// When calls were sent that no limit refused, in order.
    sent: VecDeque<Timestamp>,
    limit: Option<usize>,
    margin: Span,
    growth_interval: Span,
    next_growth: Timestamp,
}

impl SilentWindow {
    pub(super) fn new(now: Timestamp) -> Self {
        let growth_interval = GROWTH_INTERVAL.0;
        Self {
            sent: VecDeque::new(),
            limit: None,
            margin: MARGIN.0,
            growth_interval,
            next_growth: now + growth_interval,
        }
    }

    /// Returns when a call may be sent.
    pub(super) fn ready(&mut self, now: Timestamp) -> Ready {
        let Some(limit) = self.limit else { return Ready::Now };
        if now >= self.next_growth {
            self.limit = Some(limit + (limit / 50).max(1));
            self.next_growth = now + self.growth_interval;
        }
        let Some(oldest) = self.sent.len().checked_sub(limit).and_then(|place| self.sent.get(place)) else {
            return Ready::Now;
        };
        let free_at = *oldest + PERIOD + self.margin;
        if free_at <= now { Ready::Now } else { Ready::At(free_at) }
    }

    /// Counts a call.
    pub(super) fn take(&mut self, now: Timestamp) {
        // A refusal is received a while after its call was sent.
        let horizon = PERIOD + PERIOD;
        while self.sent.len() >= MAX_CALLS || self.sent.front().is_some_and(|at| *at + horizon < now) {
            self.sent.pop_front();
        }
        self.sent.push_back(now);
    }

    /// Removes a call that was refused, or not sent.
    pub(super) fn remove(&mut self, sent_at: Timestamp) {
        if let Ok(place) = self.sent.binary_search(&sent_at) {
            self.sent.remove(place);
        }
    }

    /// Learns from a refusal. `is_late` says that another one came before, of calls that were sent together.
    pub(super) fn refused(&mut self, sent_at: Timestamp, is_late: bool, now: Timestamp) {
        let end = self.sent.partition_point(|at| *at < sent_at);
        let start = self.sent.partition_point(|at| *at + PERIOD <= sent_at);
        let before = end.saturating_sub(start).max(1);
        self.limit = Some(match self.limit {
            None => before,
            // A number far below the limit is that of a longer window: half of it finds the rate.
            Some(limit) if before < limit => before.max(limit / 2).max(1),
            Some(limit) if is_late => limit,
            Some(limit) if self.margin < MARGIN.2 => {
                self.margin = (self.margin + MARGIN.1).min(MARGIN.2);
                limit
            }
            Some(limit) => limit.saturating_sub((limit / 50).max(1)).max(1),
        });
        if !is_late {
            self.growth_interval =
                Span::from_micros(self.growth_interval.as_micros().saturating_mul(2)).min(GROWTH_INTERVAL.1);
        }
        self.next_growth = now + self.growth_interval;
        self.remove(sent_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_secs(1_000) + Span::from_millis(millis)
    }

    #[test]
    fn the_calls_before_a_refusal_are_the_limit_of_every_second() {
        let mut window = SilentWindow::new(at(0));
        for call in 0..12 {
            assert_eq!(window.ready(at(call)), Ready::Now);
            window.take(at(call));
        }
        // Calls 10 and 11 are refused; the later one is heard of first.
        window.refused(at(11), false, at(20));
        window.refused(at(10), true, at(21));
        assert_eq!(window.limit, Some(10));
        assert_eq!(window.ready(at(500)), Ready::At(at(1_000) + MARGIN.0));
        assert_eq!(window.ready(at(1_016)), Ready::Now);
    }

    #[test]
    fn memory_is_bounded_and_a_limit_is_never_zero() {
        let mut window = SilentWindow::new(at(0));
        (0..100_000).for_each(|_| window.take(at(1)));
        assert!(window.sent.len() <= MAX_CALLS);
        (0..1_000).for_each(|_| window.refused(at(1), false, at(2)));
        assert_eq!(window.limit, Some(1));
    }
}
