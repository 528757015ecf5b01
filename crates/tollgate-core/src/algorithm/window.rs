//! The boundaries of fixed windows.
//!
//! The counting is the same for all of them (`fixed_window`); only the time at which a window that
//! opens now closes differs between the three kinds.
//!
//! Time zones come from the copy of the IANA database that is compiled in, so that every machine
//! agrees. The time-zone files of the system are not read.

use std::fmt;

use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

use crate::time::{Span, Timestamp};

/// The boundaries of the windows of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// Windows at multiples of the length since 1970. All keys reset at the same time.
    Epoch(Span),
    /// Windows that start with the first request of a key. Keys reset at different times.
    Anchored(Span),
    /// Windows of the calendar of a time zone.
    Calendar(Calendar),
}

/// Hours, days, weeks or months of the calendar of a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
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
}

impl Calendar {
    /// Creates a calendar from the name of its zone (`Europe/Paris`, `UTC`), or returns `None` if
    /// the name is unknown.
    pub fn new(unit: CalendarUnit, zone: &str) -> Option<Self> {
        let zone = TimeZone::get(zone).ok()?;
        Some(Self { unit, zone })
    }

    /// Returns the unit of its windows.
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// Returns the name of the zone in the IANA database.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the longest duration of the unit where clocks change by an hour, for bounds and
    /// headers.
    pub const fn longest(&self) -> Span {
        match self.unit {
            CalendarUnit::Hour => Span::from_hours(1),
            CalendarUnit::Day => Span::from_hours(25),
            CalendarUnit::Week => Span::from_hours(7 * 24 + 1),
            CalendarUnit::Month => Span::from_hours(31 * 24 + 1),
        }
    }

    /// Returns the start and the end of the window that contains `now`. The start is included, the
    /// end is not.
    pub fn around(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        // After the last date of the calendar (the year 9999), windows have a fixed length.
        self.page(now).filter(|(start, end)| *start <= now && now < *end).unwrap_or_else(|| {
            let start = now.before(Span::from_micros(now.as_micros() % self.longest().as_micros()));
            (start, start + self.longest())
        })
    }

    fn page(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let micros = i64::try_from(now.as_micros()).ok()?;
        let here = jiff::Timestamp::from_microsecond(micros).ok()?.to_zoned(self.zone.clone());
        let day = |z: &Zoned| z.start_of_day().ok();
        let (start, end) = match self.unit {
            CalendarUnit::Hour => {
                // Aligned to the offset in force: where clocks change by half an hour, the grid
                // moves with them, and a shortened hour ends where the next one begins.
                let hour = self.longest();
                let local = i128::from(micros) + i128::from(here.offset().seconds()) * 1_000_000;
                let elapsed = u64::try_from(local.rem_euclid(hour.as_micros().into())).ok()?;
                let start = now.before(Span::from_micros(elapsed));
                return Some((start, start + hour));
            }
            CalendarUnit::Day => (day(&here)?, day(&here.tomorrow().ok()?)?),
            CalendarUnit::Week => {
                let monday =
                    here.date().checked_sub(i64::from(here.weekday().to_monday_zero_offset()).days()).ok()?;
                let next = monday.checked_add(7.days()).ok()?;
                (monday.to_zoned(self.zone.clone()).ok()?, next.to_zoned(self.zone.clone()).ok()?)
            }
            CalendarUnit::Month => {
                let first = here.first_of_month().ok()?;
                (day(&first)?, day(&first.checked_add(1.month()).ok()?)?)
            }
        };
        let micros = |z: Zoned| u64::try_from(z.timestamp().as_microsecond()).unwrap_or(0);
        Some((Timestamp::from_micros(micros(start)), Timestamp::from_micros(micros(end))))
    }
}

/// Written as in `10000/month in Europe/Paris`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.unit.word(), self.zone())
    }
}

impl Window {
    /// Returns the time at which a window that opens at `now` closes.
    pub fn closes(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Epoch(length) => {
                now.before(Span::from_micros(now.as_micros() % length.as_micros().max(1))) + *length
            }
            Self::Anchored(length) => now + *length,
            Self::Calendar(calendar) => calendar.around(now).1,
        }
    }

    /// Returns the time at which the window that closes at `end` opened.
    pub fn opened(&self, end: Timestamp) -> Timestamp {
        match self {
            Self::Epoch(length) | Self::Anchored(length) => end.before(*length),
            Self::Calendar(calendar) => calendar.around(end.before(Span::from_micros(1))).0,
        }
    }

    /// Returns whether windows begin and end with the wall clock, not with the first request of a
    /// key.
    pub const fn is_aligned(&self) -> bool {
        matches!(self, Self::Epoch(_) | Self::Calendar(_))
    }

    /// Returns the longest duration of such a window.
    pub const fn longest(&self) -> Span {
        match self {
            Self::Epoch(length) | Self::Anchored(length) => *length,
            Self::Calendar(calendar) => calendar.longest(),
        }
    }
}

/// Written as in `1m`, `1m from the first request`, `month in Europe/Paris`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(length) => write!(f, "{length}"),
            Self::Anchored(length) => write!(f, "{length} from the first request"),
            Self::Calendar(calendar) => write!(f, "{calendar}"),
        }
    }
}

#[cfg(test)]
mod tests {
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
