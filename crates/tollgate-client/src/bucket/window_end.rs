//! The end of a window that is announced as a date in whole seconds.
//!
//! Servers round such a date up, down or to the nearest second, and some end the window at the date itself. A window of
//! five seconds that begins with its first request therefore ends up to a second before or after the date. Waiting for
//! the date would lose up to a second of each window; a call before the end is refused.
//!
//! Windows have whole seconds. Together with the time of the first call, the date permits two or three lengths. The
//! shortest one is tried with one call, and the longer ones if a call at the date is refused. A length that proved right
//! is used from then on. Two refusals before the date end the search: the date is then taken as it is.

use tollgate::{Span, Timestamp};

const SECOND: Span = Span::from_secs(1);
/// The time by which a predicted end has to be away from the date, for a call to tell them apart.
const MIN_DIFFERENCE: Span = Span::from_millis(100);
/// Refused calls before the date after which no more are made.
const MAX_EARLY_REFUSALS: u32 = 2;
/// The part of a second by which a mark has to be later to belong to another window.
const MARK_TOLERANCE: Span = Span::from_millis(500);
/// The bounds of the time that is added to a length, for the jitter of the network.
const MARGIN_US: (f64, f64) = (2_000.0, 100_000.0);

/// The knowledge about the ends of the windows of one bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowEnd {
    /// The date, on the clock of the server, and when it was seen first.
    mark: Option<(Timestamp, Timestamp)>,
    /// The date, on the local clock.
    announced: Option<Timestamp>,
    /// When the first call of the window was sent, if it was one of this client.
    opened: Option<Timestamp>,
    /// The latest time at which a call was sent that still belonged to the window.
    open_at: Option<Timestamp>,
    /// The length that proved right.
    length: Option<Span>,
    early_refusals: u32,
    /// Whether a call was sent before the date in this window.
    was_tried: bool,
}

impl WindowEnd {
    /// Compares the date of a response with that of the known window: `Some(true)` if it is later.
    pub(super) fn is_later(&self, mark: Timestamp) -> Option<bool> {
        let (known, _) = self.mark?;
        if mark > known + MARK_TOLERANCE {
            return Some(true);
        }
        (mark + MARK_TOLERANCE >= known).then_some(false)
    }

    /// Whether the date of a response belongs to a window that has ended. A server whose dates go back has been set
    /// or restarted: a call that was sent after the known date had been seen tells.
    pub(super) fn is_past(&self, mark: Timestamp, sent_at: Timestamp) -> bool {
        self.mark.is_some_and(|(known, seen_at)| mark + MARK_TOLERANCE < known && sent_at <= seen_at)
    }

    /// Learns the date of a response to a call that was sent at `sent_at`. `is_first` says whether it was the first
    /// call of the window.
    pub(super) fn observe(
        &mut self,
        (mark, announced): (Timestamp, Timestamp),
        (sent_at, is_first): (Timestamp, bool),
        (jitter_us, now): (f64, Timestamp),
    ) {
        if self.is_later(mark) != Some(false) {
            self.learn_length(now);
            let forgiven = u32::from(self.length.is_some());
            let early_refusals = self.early_refusals.saturating_sub(forgiven);
            *self = Self { length: self.length, early_refusals, ..Self::default() };
            (self.mark, self.announced) = (Some((mark, now)), Some(announced));
        }
        // The offset of the server's clock gets more precise, and is never too early.
        self.announced = self.announced.map(|known| known.min(announced));
        self.opened = self.opened.or(is_first.then_some(sent_at));
        self.open_at = self.open_at.max(Some(sent_at));
        if self.length.is_none() && self.announced.is_some_and(|announced| announced < sent_at) {
            // The date is rounded down.
            self.length = self.shortest(jitter_us);
        }
    }

    /// Learns from a new window that began at the latest now.
    fn learn_length(&mut self, now: Timestamp) {
        let (Some(opened), Some(announced)) = (self.opened, self.announced) else { return };
        let is_early = now + MIN_DIFFERENCE < announced;
        if self.length.is_none() && is_early {
            self.length = self.lengths().filter(|length| opened + *length <= now).last();
            self.early_refusals = if self.length.is_some() { 0 } else { self.early_refusals };
        }
    }

    /// Returns the end of the window as far as it is known: the date, or the length that proved right.
    pub(super) fn end(&self, jitter_us: f64) -> Option<Timestamp> {
        let announced = self.announced?;
        let end = self.opened.zip(self.length).map(|(opened, length)| opened + length + margin(jitter_us));
        // A server that changes its windows, or a first call of another client.
        let is_near = |end: &Timestamp| {
            end.since(announced) <= SECOND && announced.since(*end) <= SECOND + MIN_DIFFERENCE
        };
        Some(end.filter(is_near).unwrap_or(announced))
    }

    /// Returns the time at which a refused call may be sent again, if it is known.
    pub(super) fn retry_at(&self, jitter_us: f64, now: Timestamp) -> Option<Timestamp> {
        let end = self.end(jitter_us)?;
        if end > now {
            return Some(end);
        }
        // The call was a little faster than the first one of the window.
        (self.length.is_some() && end + MIN_DIFFERENCE > now).then(|| now + margin(jitter_us))
    }

    /// Returns the length that proved right.
    pub(super) fn length(&self) -> Option<Span> {
        self.length
    }

    /// Returns the time before the date at which one call may find out whether the window has ended.
    pub(super) fn early_try(&self, jitter_us: f64) -> Option<Timestamp> {
        if self.was_tried || self.length.is_some() || self.early_refusals >= MAX_EARLY_REFUSALS {
            return None;
        }
        let try_at = self.opened? + self.shortest(jitter_us)? + margin(jitter_us);
        (try_at + MIN_DIFFERENCE <= self.announced?).then_some(try_at)
    }

    /// Notes that a call before the date was sent.
    pub(super) fn tried(&mut self) {
        self.was_tried = true;
    }

    /// Learns from the refusal of a call that was sent to find out whether the window has ended.
    pub(super) fn refused(&mut self, sent_at: Timestamp, jitter_us: f64) {
        let Some(announced) = self.announced else { return };
        self.open_at = self.open_at.max(Some(sent_at));
        if sent_at < announced || self.length.is_some() {
            self.early_refusals = self.early_refusals.saturating_add(1);
            self.length = self.length.filter(|_| self.early_refusals < MAX_EARLY_REFUSALS);
        } else {
            // The date is rounded down.
            self.length = self.shortest(jitter_us);
        }
    }

    /// Returns the shortest length that no call has refuted.
    fn shortest(&self, jitter_us: f64) -> Option<Span> {
        let (opened, open_at) = (self.opened?, self.open_at?);
        self.lengths().find(|length| opened + *length + margin(jitter_us) > open_at)
    }

    /// Returns the lengths that the date permits: whole seconds that end less than a second before or after it.
    fn lengths(&self) -> impl Iterator<Item = Span> + use<> {
        let is_whole = |(mark, _): &(Timestamp, Timestamp)| mark.as_micros() % SECOND.as_micros() == 0;
        let window = self.mark.filter(is_whole).and(self.announced).zip(self.opened);
        let micros = window.map(|(announced, opened)| announced.since(opened).as_micros());
        let slack = SECOND.as_micros() + MIN_DIFFERENCE.as_micros();
        let whole = |micros: u64| micros / SECOND.as_micros();
        let range = micros.map(|it| whole(it.saturating_sub(slack)) + 1..=whole(it + slack));
        range.into_iter().flatten().map(Span::from_secs)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded
fn margin(jitter_us: f64) -> Span {
    Span::from_micros(jitter_us.clamp(MARGIN_US.0, MARGIN_US.1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JITTER_US: f64 = 5_000.0;
    const MARGIN: Span = Span::from_millis(5);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_secs(1_000) + Span::from_millis(millis)
    }

    /// A window whose first call was sent at `opened`, and whose date is `seconds`.
    fn window(opened: u64, seconds: u64) -> WindowEnd {
        let mut window = WindowEnd::default();
        window.observe(
            (at(seconds * 1_000), at(seconds * 1_000)),
            (at(opened), true),
            (JITTER_US, at(opened + 10)),
        );
        window
    }

    #[test]
    fn a_date_that_is_rounded_up_is_found_by_one_call_before_it() {
        let mut window = window(600, 6);
        assert_eq!(window.early_try(JITTER_US), Some(at(5_600) + MARGIN));
        window.tried();
        assert_eq!(window.early_try(JITTER_US), None);
        window.observe((at(11_000), at(11_000)), (at(5_605), true), (JITTER_US, at(5_615)));
        assert_eq!(window.end(JITTER_US), Some(at(10_605) + MARGIN));
    }

    #[test]
    fn a_date_that_is_rounded_down_is_found_by_one_call_at_it() {
        let mut window = window(600, 5);
        window.refused(at(5_001), JITTER_US);
        assert_eq!(window.end(JITTER_US), Some(at(5_600) + MARGIN));
    }

    #[test]
    fn two_refusals_before_the_date_end_the_search() {
        let mut window = window(5, 5);
        for start in [0, 5] {
            assert_eq!(window.early_try(JITTER_US), Some(at(start * 1_000 + 4_005) + MARGIN));
            window.tried();
            window.refused(at(start * 1_000 + 4_010), JITTER_US);
            assert_eq!(window.end(JITTER_US), Some(at(start * 1_000 + 5_000)));
            let next = at(start * 1_000 + 10_000);
            let (sent, received) = (at(start * 1_000 + 5_005), at(start * 1_000 + 5_015));
            window.observe((next, next), (sent, true), (JITTER_US, received));
        }
        assert_eq!(window.early_try(JITTER_US), None);
    }

    #[test]
    fn a_length_that_traffic_refutes_is_not_tried() {
        let mut window = window(5, 2);
        assert_eq!(window.early_try(JITTER_US), Some(at(1_005) + MARGIN));
        window.observe((at(2_000), at(2_000)), (at(1_300), false), (JITTER_US, at(1_310)));
        assert_eq!(window.early_try(JITTER_US), None);
        assert_eq!(window.end(JITTER_US), Some(at(2_000)));
    }

    #[test]
    fn dates_that_go_back_are_those_of_a_restarted_server_or_of_a_late_response() {
        let window = window(600, 6);
        assert!(window.is_past(at(1_000), at(605)));
        assert!(!window.is_past(at(1_000), at(620)));
    }
}
