//! Parses times of logs into microseconds since 1970, without floating point.
//!
//! - `17/May/2015:10:05:03 +0200`, as nginx and Apache write it, optionally with a fraction;
//! - `2015-05-17T10:05:03.123456Z`, optionally with a blank for the `T`, slashes for the dashes, or without a zone;
//! - seconds, milliseconds, microseconds or nanoseconds since 1970, optionally with a fraction. The magnitude tells
//!   the unit.
//!
//! Digits below a microsecond are truncated.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The latest time that is accepted, in microseconds: the year 2100, far before the end of a store's clock.
const MAX_TIME_US: u64 = 4_102_444_800_000_000;

/// A parser of times. It caches the last day, because consecutive lines are usually of the same day.
#[derive(Clone, Debug)]
pub(super) struct Times {
    zone: TimeZone,
    is_utc: bool,
    /// A day such as `17/May/2015:`, and the seconds from 1970 to its start.
    day: ([u8; 12], i64),
}

impl Times {
    /// Creates a parser that reads times without a zone in this zone.
    pub(super) fn new(zone: TimeZone) -> Self {
        let is_utc = zone == TimeZone::UTC;
        Self { zone, is_utc, day: (*b"01/Jan/1970:", 0) }
    }

    /// Parses a time in any of the formats above.
    pub(super) fn read(&mut self, text: &[u8]) -> Option<u64> {
        let text = text.trim_ascii();
        let micros = match text {
            [_, _, b'/', ..] => self.day_first(text)?,
            [_, _, _, _, b'-' | b'/', ..] => self.year_first(text)?,
            _ => since_1970(text)?,
        };
        (micros <= MAX_TIME_US).then_some(micros)
    }

    /// Parses `17/May/2015:10:05:03 +0000`.
    fn day_first(&mut self, text: &[u8]) -> Option<u64> {
        let (day, rest) = text.split_first_chunk::<12>()?;
        if *day != self.day.0 {
            let [d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':' | b' '] = *day else { return None };
            let seconds = day_start(number([y1, y2, y3, y4])?, month([m1, m2, m3])?, number([d1, d2])?)?;
            self.day = (*day, seconds);
        }
        let (second, rest) = second_of_day(rest)?;
        self.settled(self.day.1 + second, rest)
    }

    /// Parses `2015-05-17T10:05:03Z`.
    fn year_first(&self, text: &[u8]) -> Option<u64> {
        let (day, rest) = text.split_first_chunk::<11>()?;
        let [y1, y2, y3, y4, one @ (b'-' | b'/'), m1, m2, two, d1, d2, b'T' | b't' | b' ' | b'_'] = *day
        else {
            return None;
        };
        if one != two {
            return None;
        }
        let start = day_start(number([y1, y2, y3, y4])?, number([m1, m2])?, number([d1, d2])?)?;
        let (second, rest) = second_of_day(rest)?;
        self.settled(start + second, rest)
    }

    /// Applies the fraction and the zone after a time of day.
    fn settled(&self, seconds: i64, rest: &[u8]) -> Option<u64> {
        let (micros, rest) = match rest {
            [b'.' | b',', rest @ ..] => fraction(rest, 6)?,
            _ => (0, rest),
        };
        let zone = rest.trim_ascii();
        let seconds = if !zone.is_empty() {
            seconds - i64::from(offset(zone)?)
        } else if self.is_utc {
            seconds
        } else {
            self.of_the_zone(seconds)?
        };
        u64::try_from(seconds).ok()?.checked_mul(1_000_000)?.checked_add(micros)
    }

    /// Converts local time to seconds since 1970. Of an hour that occurs twice, the first one is meant.
    fn of_the_zone(&self, seconds: i64) -> Option<i64> {
        let shown = jiff::Timestamp::from_second(seconds).ok()?;
        let shown: DateTime = TimeZone::UTC.to_datetime(shown);
        Some(self.zone.to_timestamp(shown).ok()?.as_second())
    }
}

/// Parses `10:05:03` at the start of a text; returns the rest too.
fn second_of_day(text: &[u8]) -> Option<(i64, &[u8])> {
    let ([h1, h2, b':', m1, m2, b':', s1, s2], rest) = text.split_first_chunk::<8>()? else { return None };
    let (hour, minute, second) = (number([*h1, *h2])?, number([*m1, *m2])?, number([*s1, *s2])?);
    // A leap second has the number 60. It counts as the first second of the next minute.
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then_some(((hour * 60 + minute) * 60 + second, rest))
}

/// Parses the offset of a zone, in seconds: `Z`, `UTC`, `GMT`, `+0200`, `+02:00`, `-07`.
pub(super) fn offset(text: &[u8]) -> Option<i32> {
    if matches!(text, b"Z" | b"z" | b"UTC" | b"GMT" | b"+0000") {
        return Some(0);
    }
    let (hours, minutes) = match *text {
        [_, h1, h2] => ([h1, h2], *b"00"),
        [_, h1, h2, m1, m2] | [_, h1, h2, b':', m1, m2] => ([h1, h2], [m1, m2]),
        _ => return None,
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let seconds = i32::try_from((hours * 60 + minutes) * 60).ok().filter(|_| hours < 24 && minutes < 60)?;
    match text.first()? {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// Parses a number with an optional fraction, in the unit that its magnitude implies.
fn since_1970(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    if whole.is_empty() || whole.len() > 19 {
        return None;
    }
    let whole = whole.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    // As seconds, the first bound is the year 5138; as milliseconds, it is 1973.
    let (unit, digits) = match whole {
        0..100_000_000_000 => (1_000_000, 6),
        100_000_000_000..100_000_000_000_000 => (1_000, 3),
        100_000_000_000_000..100_000_000_000_000_000 => (1, 0),
        _ => return rest.is_empty().then_some(whole / 1_000),
    };
    let (micros, rest) = match rest {
        [b'.' | b',', rest @ ..] => fraction(rest, digits)?,
        _ => (0, rest),
    };
    if rest.is_empty() { whole.checked_mul(unit)?.checked_add(micros) } else { None }
}

/// Parses digits at the start of a text as a fraction with this many digits; returns the rest too. Further digits are
/// truncated.
fn fraction(text: &[u8], digits: usize) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return None;
    }
    let (fraction, rest) = text.split_at(end);
    let padded = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(digits);
    Some((padded.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')), rest))
}

fn number<const N: usize>(digits: [u8; N]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

fn month(name: [u8; 3]) -> Option<i64> {
    const NAMES: [&[u8; 3]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let name = name.map(|byte| byte.to_ascii_lowercase());
    NAMES.iter().zip(1..).find(|(known, _)| **known == &name).map(|(_, month)| month)
}

/// Returns the seconds from 1970 to the start of a day; `None` if the day does not exist.
fn day_start(year: i64, month: i64, day: i64) -> Option<i64> {
    let date =
        jiff::civil::Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    Some(TimeZone::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> Option<u64> {
        Times::new(TimeZone::UTC).read(text.as_bytes())
    }

    #[test]
    fn times_are_read_in_every_format() {
        let may = 1_431_857_103_000_000;
        let cases = [
            ("17/May/2015:10:05:03 +0000", may),
            ("17/May/2015:12:05:03 +0200", may),
            ("17/May/2015:03:05:03 -0700", may),
            ("17/May/2015:15:35:03 +05:30", may),
            ("17/May/2015:10:05:03", may),
            ("17/may/2015:10:05:03.25 +0000", may + 250_000),
            ("2015-05-17T10:05:03Z", may),
            ("2015-05-17T10:05:03+00:00", may),
            ("2015-05-17 10:05:03 UTC", may),
            ("2015-05-17T12:05:03.000001+02:00", may + 1),
            ("2015-05-17 10:05:03,5", may + 500_000),
            ("2015/05/17 10:05:03", may),
            (" 2015-05-17 10:05:03.9999999 ", may + 999_999),
            ("2023-11-16 18:17:03.9799600", 1_700_158_623_979_960),
            ("1431857103", may),
            ("1431857103.123456789", may + 123_456),
            ("1431857103123", may + 123_000),
            ("1431857103123.4", may + 123_400),
            ("1431857103123456", may + 123_456),
            ("1431857103123456789", may + 123_456),
            ("0.000001", 1),
            ("29/Feb/2016:00:00:00 +0000", 1_456_704_000_000_000),
            ("31/Dec/2016:23:59:60 +0000", 1_483_228_800_000_000),
        ];
        for (text, expected) in cases {
            assert_eq!(utc(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected() {
        let cases = [
            "",
            "-",
            "now",
            "17/May/2015",
            "29/Feb/2015:00:00:00 +0000",
            "32/May/2015:00:00:00 +0000",
            "17/Mai/2015:00:00:00 +0000",
            "17/May/2015:24:00:00 +0000",
            "17/May/2015:10:60:00 +0000",
            "17/May/2015:10:05:61 +0000",
            "17/May/2015:10:05:03 +0x00",
            "17/May/2015:10:05:03 CEST",
            "17/May/2015:10:05:03. +0000",
            "17/May/1969:10:05:03 +0000",
            "01/Jan/1970:00:00:00 +0100",
            "2015-13-17T10:05:03Z",
            "2015-05/17T10:05:03Z",
            "2015-05-17",
            "9999-05-17T10:05:03Z",
            "-1431857103",
            "1431857103x",
            "1.5e9",
            "99999999999999999999",
        ];
        for text in cases {
            assert_eq!(utc(text), None, "{text}");
        }
    }

    #[test]
    fn the_cached_day_is_not_used_for_another_day() {
        let mut times = Times::new(TimeZone::UTC);
        let mut read = |text: &str| times.read(text.as_bytes());
        let day = 86_400_000_000;
        let first = read("17/May/2015:10:05:03 +0000").unwrap();
        assert_eq!(read("18/May/2015:10:05:03 +0000"), Some(first + day));
        assert_eq!(read("XX/May/2015:10:05:03 +0000"), None);
        assert_eq!(read("17/May/2015:10:05:03 +0000"), Some(first));
    }

    #[test]
    fn a_time_without_a_zone_uses_the_configured_zone() {
        let mut berlin = Times::new(TimeZone::get("Europe/Berlin").unwrap());
        assert_eq!(berlin.read(b"2015-05-17 12:05:03"), utc("17/May/2015:10:05:03 +0000"));
        assert_eq!(berlin.read(b"2015-01-17 12:05:03"), utc("17/Jan/2015:11:05:03 +0000"));
        assert_eq!(berlin.read(b"2015-05-17T12:05:03Z"), utc("17/May/2015:12:05:03 +0000"));
        assert_eq!(offset(b"-0730"), Some(-27_000));
    }
}
