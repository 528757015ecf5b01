//! Converts rates with a fraction, such as `1.5/second`, into equal rates in whole numbers: `3/2s`.
//!
//! Rates are whole numbers because every algorithm counts whole units. A fraction is a mistake, and
//! this module computes the exact rate for the suggestion, without rounding.

use super::{RateText, unit_named};

/// Returns the smallest whole-number rate that equals a rate with a fraction, without a burst.
/// `None` for rates without a fraction, and for texts that are not a rate.
///
/// Both numbers are multiplied by the same factor, so that `2.0/30s` is `2/30s` and not `1/15s`:
/// the number of a rate is also the size of its bucket.
pub(super) fn in_whole_numbers(text: &str) -> Option<String> {
    let rate = &text[..rate_end(text)];
    let (count, period) = rate.split_once('/')?;
    let period = period.trim();
    let word = period.trim_start_matches(|it: char| it.is_ascii_digit() || "._,".contains(it));
    let times = period[..period.len() - word.len()].trim();
    let unit = unit_named(word.trim())?;
    let (count, times) =
        (Decimal::read(count.trim())?, Decimal::read(if times.is_empty() { "1" } else { times })?);
    if !count.is_fraction && !times.is_fraction {
        return None;
    }
    let factor = lcm(count.denominator, times.denominator)?;
    let whole = |it: &Decimal| it.numerator.checked_mul(factor / it.denominator);
    let meant = format!("{}/{}", whole(&count)?, unit.counted(whole(&times)?));
    // A suggestion must be valid itself, so a rate of zero is not suggested.
    RateText::parse(&meant).ok().map(|_| meant)
}

/// Returns the end of the rate, where `, burst N` begins. A comma before the `/` is part of a number.
pub(super) fn rate_end(text: &str) -> usize {
    let slash = text.find('/').unwrap_or(0);
    let blank_or_letter = |after: &str| !after.starts_with(|it: char| it.is_ascii_digit());
    let commas = text[slash..].match_indices(',').map(|(at, _)| slash + at);
    let mut ends = commas.filter(|at| blank_or_letter(&text[at + 1..]));
    text[..ends.next().unwrap_or(text.len())].trim_end().len()
}

/// A number with a fraction, in lowest terms.
struct Decimal {
    numerator: u64,
    denominator: u64,
    /// Whether it was written with a point or a comma, even if only zeros follow.
    is_fraction: bool,
}

impl Decimal {
    /// Parses `1.5`, `.5`, `1_000.25`, `1,5`, `1.5k`.
    fn read(text: &str) -> Option<Self> {
        let (number, factor) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1_000_u64),
            None => (text.strip_suffix('M').unwrap_or(text), if text.ends_with('M') { 1_000_000 } else { 1 }),
        };
        let (whole, part) = number.split_once(['.', ',']).unwrap_or((number, ""));
        let digits: String = format!("{whole}{part}").chars().filter(|it| *it != '_').collect();
        if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        let places = part.chars().filter(char::is_ascii_digit).count();
        let denominator = 10_u64.checked_pow(u32::try_from(places).ok()?)?;
        let numerator = digits.parse::<u64>().ok()?.checked_mul(factor)?;
        let common = gcd(numerator, denominator);
        let is_fraction = number.contains(['.', ',']);
        Some(Self { numerator: numerator / common, denominator: denominator / common, is_fraction })
    }
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_has_an_exact_rate_in_whole_numbers() {
        for (text, meant) in [
            ("1.5/second", Some("3/2s")),
            ("0.5/s", Some("1/2s")),
            (".5/s", Some("1/2s")),
            ("1,5/second", Some("3/2s")),
            ("2.0/30s", Some("2/30s")),
            ("2.50/minute", Some("5/2m")),
            ("0.1/hour", Some("1/10h")),
            ("1.5/2s", Some("3/4s")),
            ("5/1.5s", Some("10/3s")),
            ("1.5/1.5 minutes", Some("3/3m")),
            ("0.333/day", Some("333/1000d")),
            ("1.5/month", Some("3/2 months")),
            ("1.5k/s", Some("1500/second")),
            ("1_000.25/week", Some("4001/4w")),
            ("1.5/second, burst 20", Some("3/2s")),
            ("1.5/second,burst 20", Some("3/2s")),
            ("1/second", None),
            ("1.5/fortnight", None),
            ("0.0/s", None),
            ("1.2.3/s", None),
            ("-1.5/s", None),
            ("1.5", None),
            ("/", None),
            (",/,", None),
        ] {
            assert_eq!(in_whole_numbers(text).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn the_rate_that_is_suggested_is_the_rate_that_was_written() {
        for (text, (count, micros)) in [
            ("0.123/ms", (123_u128, 1_000_000)),
            ("7.25/3h", (29, 43_200_000_000)),
            ("1.001/2.5m", (1001, 150_000_000_000)),
        ] {
            let rate = RateText::parse(&in_whole_numbers(text).unwrap()).unwrap().rate();
            assert_eq!(
                u128::from(rate.count) * micros,
                count * u128::from(rate.period.as_micros()),
                "{text}"
            );
        }
    }
}
