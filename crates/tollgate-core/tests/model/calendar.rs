//! A model of calendar windows: a window contains all instants with the same calendar label.
//!
//! It labels the instant, and searches in both directions for a change of the label.

use jiff::Zoned;
use jiff::tz::TimeZone;
use tollgate_core::{Calendar, CalendarUnit};

const HOUR: i128 = 3_600_000_000;

/// Returns the start (included) and the end (not included) of the calendar unit that contains
/// `now`.
pub(crate) fn square(calendar: &Calendar, now: i128) -> (i128, i128) {
    let zone = TimeZone::get(calendar.zone()).expect("a calendar's zone exists");
    let label = |at: i128| label(calendar.unit(), &zone, at);
    let here = label(now);
    let reach = 2 * longest(calendar.unit());
    let start = boundary(now, now - reach, |at| label(at) == here);
    let end = boundary(now, now + reach, |at| label(at) == here);
    (start, end + 1)
}

/// Returns the documented longest duration of the unit, for the bound on clocks that step back.
pub(super) fn longest(unit: CalendarUnit) -> i128 {
    match unit {
        CalendarUnit::Hour => HOUR,
        CalendarUnit::Day => 25 * HOUR,
        CalendarUnit::Week => (7 * 24 + 1) * HOUR,
        CalendarUnit::Month => (31 * 24 + 1) * HOUR,
    }
}

/// Returns the last instant on the way from `inside` to `outside` that is still `within`.
fn boundary(mut inside: i128, mut outside: i128, within: impl Fn(i128) -> bool) -> i128 {
    while (outside - inside).abs() > 1 {
        let middle = inside + (outside - inside) / 2;
        if within(middle) { inside = middle } else { outside = middle }
    }
    inside
}

/// Returns a label that is equal for two instants of one calendar unit. An hour that happens twice
/// is two windows, so its label includes the offset.
fn label(unit: CalendarUnit, zone: &TimeZone, at: i128) -> [i32; 4] {
    let micros = i64::try_from(at).expect("test times are within this century");
    let instant = jiff::Timestamp::from_microsecond(micros).expect("test times are within this century");
    let wall: Zoned = instant.to_zoned(zone.clone());
    let (year, month, day) = (wall.year().into(), wall.month().into(), wall.day().into());
    match unit {
        CalendarUnit::Hour => [day, wall.hour().into(), wall.offset().seconds(), 0],
        CalendarUnit::Day => [year, month, day, 0],
        CalendarUnit::Week => {
            let week = wall.date().iso_week_date();
            [week.year().into(), week.week().into(), 0, 0]
        }
        CalendarUnit::Month => [year, month, 0, 0],
    }
}
