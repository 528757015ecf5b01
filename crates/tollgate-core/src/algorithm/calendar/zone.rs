//! The time zones of calendars.
//!
//! They come from the copy of the IANA database that is compiled in, so that every machine agrees. The
//! time-zone files of the system are not read.

use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

use super::CalendarUnit;
use crate::time::{Span, Timestamp};

/// A time zone of the IANA database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone(TimeZone);

impl Zone {
    /// Returns the zone with this name, if there is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    pub(super) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Returns the start and the end of the window that contains `now`; `None` outside of the years
    /// that the calendar has.
    pub(super) fn page(&self, unit: CalendarUnit, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let micros = i64::try_from(now.as_micros()).ok()?;
        let here = jiff::Timestamp::from_microsecond(micros).ok()?.to_zoned(self.0.clone());
        let day = |z: &Zoned| z.start_of_day().ok();
        let (start, end) = match unit {
            CalendarUnit::Hour => {
                // Aligned to the offset in force: where clocks change by half an hour, the grid
                // moves with them, and a shortened hour ends where the next one begins.
                let hour = unit.longest();
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
                (monday.to_zoned(self.0.clone()).ok()?, next.to_zoned(self.0.clone()).ok()?)
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
