//! Numbers, durations and dates as servers write them.
//!
//! Every parser is strict and saturates: a sign, an exponent, `NaN` or a blank inside makes a value malformed, and a
//! number that is too large becomes the largest one. Fractions are rounded up, so that a wait is never too short.

use std::time::UNIX_EPOCH;

use tollgate::{Span, Timestamp};

/// The longest text that is parsed as a number.
const MAX_NUMBER_BYTES: usize = 32;

/// Parses an unsigned integer, saturating.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.len() <= MAX_NUMBER_BYTES;
    (is_number && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses a decimal number of `unit` microseconds: `1`, `0.25`.
pub(super) fn decimal(text: &str, unit: u64) -> Option<Span> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
    let micros = integer(whole)?.saturating_mul(unit);
    integer(fraction)?;
    // Twelve digits are more than a microsecond of the largest unit.
    let digits: String = fraction.chars().take(12).collect();
    let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(0));
    let part = (u128::from(integer(&digits)?) * u128::from(unit)).div_ceil(scale);
    Some(Span::from_micros(micros.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))))
}

/// The units of a duration, in microseconds. Longer names come first.
const UNITS: [(&str, u64); 7] = [
    ("ms", 1_000),
    ("us", 1),
    ("µs", 1),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("d", 86_400_000_000),
];

/// Parses a duration of Go, such as `6m0s` or `20ms`, or a plain number of seconds.
pub(super) fn duration(text: &str) -> Option<Span> {
    let mut rest = text.trim();
    if rest.len() > MAX_NUMBER_BYTES {
        return None;
    }
    if let Some(seconds) = decimal(rest, 1_000_000) {
        return Some(seconds);
    }
    let mut sum = Span::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| char != '.' && !char.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let (name, unit) = match tail.strip_prefix("ns") {
            // A nanosecond is less than the tick; it counts as one microsecond.
            Some(_) => ("ns", 0),
            None => *UNITS.iter().find(|(name, _)| tail.starts_with(name))?,
        };
        sum = sum + decimal(number, unit)? + Span::from_micros(u64::from(unit == 0));
        rest = &tail[name.len()..];
    }
    Some(sum)
}

/// Parses a date of HTTP.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(Timestamp::EPOCH + Span::from(date.duration_since(UNIX_EPOCH).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_numbers_are_refused_and_large_ones_saturate() {
        for text in
            ["", " ", "-1", "+1", "1e9", "NaN", "inf", "0x10", "1 2", "１", "1,000", "1.2.3", ".5", "1."]
        {
            assert_eq!(decimal(text, 1_000_000), None, "{text}");
        }
        assert_eq!(decimal("99999999999999999999999", 1_000_000), Some(Span::from_micros(u64::MAX)));
        assert_eq!(integer(&"9".repeat(40)), None);
        assert_eq!(decimal("1.0000001", 1_000_000), Some(Span::from_micros(1_000_001)));
        assert_eq!(decimal(" 2 ", 1_000), Some(Span::from_millis(2)));
    }

    #[test]
    fn durations_of_go_are_parsed() {
        for (text, micros) in [
            ("20ms", 20_000),
            ("6m0s", 360_000_000),
            ("1h2m3.5s", 3_723_500_000),
            ("1.5s", 1_500_000),
            ("7", 7_000_000),
            ("12µs", 12),
            ("3ns", 1),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Some(Span::from_micros(micros)), "{text}");
        }
        for text in ["-1s", "s", "1x", "1s1", "1m-2s", "NaNs"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
