//! Calendar windows are adjacent: every instant is in exactly one window, and all its instants
//! agree on its end, also where clocks change.

use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::sample::Index;
use tollgate_core::{Calendar, Span, Timestamp, Window};

use crate::model::calendar::square;
use crate::quotas;
use crate::seed::check;

const TICK: Span = Span::from_micros(1);
const YEAR: u64 = 31_536_000_000_000;

/// Returns an instant within three hours of a change of clocks in 2025 to 2027, or anywhere in
/// those years where clocks do not change.
fn near_a_change(calendar: &Calendar, which: Index, share: u64) -> Timestamp {
    let zone = TimeZone::get(calendar.zone()).expect("a calendar's zone exists");
    let from = jiff::Timestamp::from_second(1_735_689_600).expect("2025 exists");
    let changes: Vec<_> = zone.following(from).take(6).map(|change| change.timestamp()).collect();
    let (start, width) = match changes.len() {
        0 => (from.as_microsecond(), 3 * YEAR),
        count => (changes[which.index(count)].as_microsecond() - 10_800_000_000, 21_600_000_000),
    };
    Timestamp::from_micros(u64::try_from(start).unwrap_or(0) + share % width)
}

#[test]
fn a_window_contains_the_instants_of_one_calendar_unit() {
    check(1_500, (quotas::calendars(), any::<Index>(), any::<u64>()), |(calendar, which, share)| {
        let now = near_a_change(&calendar, which, share);
        let (_, end) = square(&calendar, now.as_micros().into());
        let window = Window::Calendar(calendar);
        prop_assert_eq!(i128::from(window.closes(now).as_micros()), end, "at {:?}", now);
        Ok(())
    });
}

#[test]
fn windows_are_adjacent() {
    check(2_000, (quotas::calendars(), any::<Index>(), any::<u64>()), |(calendar, which, share)| {
        let now = near_a_change(&calendar, which, share);
        let window = Window::Calendar(calendar);
        let end = window.closes(now);
        prop_assert!(window.opened(end) <= now && now < end);
        prop_assert_eq!(window.closes(end.before(TICK)), end);
        let next = window.closes(end);
        prop_assert!(window.opened(next) <= end && end < next);
        prop_assert_eq!(window.closes(next.before(TICK)), next);
        Ok(())
    });
}
