//! Envoy's units of time.
//!
//! A month has thirty days and a year 365, as in envoyproxy/ratelimit.

use tollgate::Span;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

/// The units with their names in JSON.
const ALL: [(Unit, &str, u64); 7] = [
    (Unit::Second, "SECOND", 1),
    (Unit::Minute, "MINUTE", 60),
    (Unit::Hour, "HOUR", 3_600),
    (Unit::Day, "DAY", 86_400),
    (Unit::Month, "MONTH", 30 * 86_400),
    (Unit::Year, "YEAR", 365 * 86_400),
    (Unit::Week, "WEEK", 7 * 86_400),
];

impl Unit {
    /// Returns the unit of a number in an override, where weeks do not exist.
    pub(crate) fn of_override(number: u64) -> Option<Self> {
        let found = ALL.iter().find(|(unit, _, _)| *unit as u64 == number && *unit != Self::Week);
        found.map(|(unit, _, _)| *unit)
    }

    /// Returns the number of the unit with this name, zero for `UNKNOWN`.
    pub(crate) fn number_of(name: &str) -> Option<u64> {
        if name == "UNKNOWN" {
            return Some(0);
        }
        ALL.iter().find(|(_, known, _)| *known == name).map(|(unit, _, _)| *unit as u64)
    }

    /// Returns the unit with exactly this length.
    pub(crate) fn of_span(span: Span) -> Option<Self> {
        let micros = span.as_micros();
        if !micros.is_multiple_of(1_000_000) {
            return None;
        }
        Self::of_secs(micros / 1_000_000)
    }

    /// Returns the unit with this number of seconds.
    pub(crate) fn of_secs(secs: u64) -> Option<Self> {
        ALL.iter().find(|(_, _, known)| *known == secs).map(|(unit, _, _)| *unit)
    }

    /// The length in seconds.
    pub(crate) const fn secs(self) -> u64 {
        ALL[self as usize - 1].2
    }

    pub(crate) const fn name(self) -> &'static str {
        ALL[self as usize - 1].1
    }
}
