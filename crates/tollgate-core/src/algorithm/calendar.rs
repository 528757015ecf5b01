//! Windows of the calendar of a time zone: hours, days, weeks and months.
//!
//! The type is always there, so that code that reads windows is the same in every build. Only the
//! feature `calendar` has time zones, and so calendars can be created only with it.

use core::fmt;

#[cfg(feature = "calendar")]
mod zone;

#[cfg(feature = "calendar")]
use self::zone::Zone;
use crate::time::{Span, Timestamp};

/// A time zone. Without the feature `calendar` there is none, and so there is no calendar.
#[cfg(not(feature = "calendar"))]
#[derive(Clone, Debug, PartialEq, Eq)]
enum Zone {}

#[cfg(not(feature = "calendar"))]
impl Zone {
    const fn name(&self) -> &str {
        match *self {}
    }

    const fn page(&self, _: CalendarUnit, _: Timestamp) -> Option<(Timestamp, Timestamp)> {
        match *self {}
    }
}

/// Hours, days, weeks or months of the calendar of a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: Zone,
}

/// The unit of a calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight: 23 or 25 hours twice a year in many places.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
}

impl CalendarUnit {
    /// Returns the word that a policy uses for the unit.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    const fn longest(self) -> Span {
        match self {
            Self::Hour => Span::from_hours(1),
            Self::Day => Span::from_hours(25),
            Self::Week => Span::from_hours(7 * 24 + 1),
            Self::Month => Span::from_hours(31 * 24 + 1),
        }
    }
}

impl Calendar {
    /// Creates a calendar from the name of its zone (`Europe/Paris`, `UTC`), or returns `None` if
    /// the name is unknown. Needs the feature `calendar`.
    #[cfg(feature = "calendar")]
    pub fn new(unit: CalendarUnit, zone: &str) -> Option<Self> {
        Some(Self { unit, zone: Zone::named(zone)? })
    }

    /// Returns the unit of its windows.
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// Returns the name of the zone in the IANA database.
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// Returns the longest duration of the unit where clocks change by an hour, for bounds and
    /// headers.
    pub const fn longest(&self) -> Span {
        self.unit.longest()
    }

    /// Returns the start and the end of the window that contains `now`. The start is included, the
    /// end is not.
    pub fn around(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        // After the last date of the calendar (the year 9999), windows have a fixed length.
        self.zone.page(self.unit, now).filter(|(start, end)| *start <= now && now < *end).unwrap_or_else(
            || {
                let start = now.before(Span::from_micros(now.as_micros() % self.longest().as_micros()));
                (start, start + self.longest())
            },
        )
    }
}

/// Written as in `10000/month in Europe/Paris`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.unit.word(), self.zone())
    }
}

#[cfg(test)]
#[cfg(feature = "calendar")]
mod tests {
    use jiff::Zoned;

    use super::*;

    #[track_caller]
    fn check(unit: CalendarUnit, zone: &str, now: &str, start: &str, end: &str) {
        let at = |text: &str| {
            let zoned: Zoned = format!("{text}[{zone}]").parse().unwrap();
            Timestamp::from_micros(u64::try_from(zoned.timestamp().as_microsecond()).unwrap())
        };
        assert_eq!(Calendar::new(unit, zone).unwrap().around(at(now)), (at(start), at(end)));
    }

    #[test]
    fn calendar_windows_follow_the_wall_clock() {
        use CalendarUnit::{Day, Hour, Month, Week};
        check(Day, "Europe/Paris", "2026-03-29T12:00", "2026-03-29T00:00", "2026-03-30T00:00");
        check(Day, "America/New_York", "2026-11-01T23:59", "2026-11-01T00:00", "2026-11-02T00:00");
        check(Week, "UTC", "2026-11-15T10:00", "2026-11-09T00:00", "2026-11-16T00:00");
        check(Month, "Asia/Tokyo", "2028-02-29T23:59", "2028-02-01T00:00", "2028-03-01T00:00");
        check(Hour, "Asia/Kolkata", "2026-11-15T10:45", "2026-11-15T10:00", "2026-11-15T11:00");
    }

    #[test]
    fn days_with_a_clock_change_have_23_or_25_hours() {
        let paris = Calendar::new(CalendarUnit::Day, "Europe/Paris").unwrap();
        let length = |secs| {
            let (start, end) = paris.around(Timestamp::from_secs(secs));
            end.since(start)
        };
        assert_eq!(length(1_774_782_000), Span::from_hours(23)); // 29 March 2026
        assert_eq!(length(1_792_925_000), Span::from_hours(25)); // 25 October 2026
        assert_eq!(length(1_790_000_000), Span::from_hours(24));
    }

    #[test]
    fn an_hour_that_happens_twice_is_two_windows() {
        let paris = Calendar::new(CalendarUnit::Hour, "Europe/Paris").unwrap();
        let first = paris.around(Timestamp::from_secs(1_792_886_400 + 1_800)); // 02:30, summer time
        let second = paris.around(Timestamp::from_secs(1_792_890_000 + 1_800)); // 02:30, winter time
        assert_eq!(first.1, second.0);
        assert_eq!(second.1.since(first.0), Span::from_hours(2));
    }

    #[test]
    fn every_instant_has_a_window_even_after_the_year_9999() {
        for unit in [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month] {
            let calendar = Calendar::new(unit, "Pacific/Apia").unwrap();
            for now in [0, 1, 1_325_239_199_999_999, 253_402_300_799_000_000, u64::MAX / 2, u64::MAX - 1] {
                let now = Timestamp::from_micros(now);
                let (start, end) = calendar.around(now);
                assert!(start <= now && now < end, "{unit:?} at {now:?}: {start:?} to {end:?}");
            }
        }
    }

    #[test]
    fn an_unknown_zone_is_rejected() {
        assert_eq!(Calendar::new(CalendarUnit::Day, "Mars/Olympus"), None);
    }
}
