//! Parses rates such as `1000/minute, burst 200`.
//!
//! People write rates in many ways; each other syntax gets a suggestion in this one.

mod decimal;

use std::ops::Range;

use tollgate_core::{CalendarUnit, Rate, Span};

use crate::diagnostic::Place;
use crate::document::{short, whole_number};
use crate::mistake::Mistake;
use crate::suggest::nearest;

/// A rate as written: `1000/minute, burst 200`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateText {
    /// The number before the `/`.
    pub count: u64,
    /// The number of units after the `/`.
    pub times: u64,
    /// The unit of time.
    pub unit: Unit,
    /// The number after `burst`.
    pub burst: Option<u64>,
    /// The bytes of `burst N`, for messages.
    pub burst_at: Range<usize>,
    /// The place of those bytes, once it is known.
    pub burst_place: Place,
}

/// A unit of time in a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1 ms.
    Millisecond,
    /// 1,000 ms.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days, or a month of the calendar in aligned windows.
    Month,
}

const UNITS: [(Unit, &[&str]); 7] = [
    (Unit::Second, &["second", "seconds", "sec", "secs", "s"]),
    (Unit::Minute, &["minute", "minutes", "min", "mins", "m"]),
    (Unit::Hour, &["hour", "hours", "hr", "h"]),
    (Unit::Day, &["day", "days", "d"]),
    (Unit::Week, &["week", "weeks", "w"]),
    (Unit::Month, &["month", "months"]),
    (Unit::Millisecond, &["ms", "millisecond", "milliseconds"]),
];
const EXAMPLES: &str = "rates look like 10/minute, 5/2s, 100/15m or 1000/hour, burst 200";
const UNIT_WORDS: &str =
    "the units are ms, second, minute, hour, day, week and month; s, m, h, d and w for short";

/// Returns the words of rates and lengths of time.
pub fn rate_words() -> impl Iterator<Item = &'static str> {
    unit_words().chain(["burst"])
}

fn unit_words() -> impl Iterator<Item = &'static str> {
    UNITS.iter().flat_map(|(_, words)| *words).copied()
}

fn unit_named(word: &str) -> Option<Unit> {
    UNITS.iter().find(|(_, words)| words.contains(&word)).map(|(unit, _)| *unit)
}

impl RateText {
    /// Parses a rate, or returns the mistake in the text.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        if let Some(mistake) = foreign_form(text).or_else(|| fraction(text)) {
            return Err(mistake);
        }
        let Some(slash) = text.find('/') else {
            return Err(Mistake::new(format!("`{}` is not a rate", short(text))).help(EXAMPLES));
        };
        let count = count(text, 0..slash)?;
        let comma = text[slash..].find(',').map_or(text.len(), |at| slash + at);
        let (times, unit) = period(text, slash + 1..comma)?;
        if times == 0 {
            let at = trimmed(text, slash + 1..comma);
            return Err(Mistake::new("a period of zero has no rate").at(at).label("at least 1"));
        }
        let (burst, burst_at) = burst(text, comma)?;
        Ok(Self { count, times, unit, burst, burst_at, burst_place: Place::default() })
    }

    /// Returns the rate. A month outside of calendars has 30 days.
    pub fn rate(&self) -> Rate {
        Rate::new(self.count, self.unit.times(self.times))
    }

    /// Returns the calendar unit of this rate, if it has one.
    pub fn calendar_unit(&self) -> Option<CalendarUnit> {
        match self.unit {
            _ if self.times != 1 => None,
            Unit::Hour => Some(CalendarUnit::Hour),
            Unit::Day => Some(CalendarUnit::Day),
            Unit::Week => Some(CalendarUnit::Week),
            Unit::Month => Some(CalendarUnit::Month),
            Unit::Millisecond | Unit::Second | Unit::Minute => None,
        }
    }
}

impl Unit {
    /// Formats a number of units in the shortest form: `second`, `2s`, `3 months`.
    fn counted(self, times: u64) -> String {
        let (full, short) = match self {
            Self::Millisecond => ("ms", "ms"),
            Self::Second => ("second", "s"),
            Self::Minute => ("minute", "m"),
            Self::Hour => ("hour", "h"),
            Self::Day => ("day", "d"),
            Self::Week => ("week", "w"),
            Self::Month => ("month", " months"),
        };
        if times == 1 { full.to_owned() } else { format!("{times}{short}") }
    }

    fn times(self, times: u64) -> Span {
        match self {
            Self::Millisecond => Span::from_millis(times),
            Self::Second => Span::from_secs(times),
            Self::Minute => Span::from_minutes(times),
            Self::Hour => Span::from_hours(times),
            Self::Day => Span::from_days(times),
            Self::Week => Span::from_days(times.saturating_mul(7)),
            Self::Month => Span::from_days(times.saturating_mul(30)),
        }
    }
}

/// Parses a length of time: `30s`, `5 minutes`, `500ms`. A length of zero is a mistake.
pub fn parse_span(text: &str) -> Result<Span, Mistake> {
    let span = parse_span_or_zero(text)?;
    if span.is_zero() {
        return Err(Mistake::new(format!("`{}` is no time", short(text))).label("at least 1ms"));
    }
    Ok(span)
}

/// Parses a length of time that may be zero.
pub(crate) fn parse_span_or_zero(text: &str) -> Result<Span, Mistake> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').len();
    if digits == 0 || digits == text.len() {
        let meant = if digits == 0 { "30s".to_owned() } else { format!("{text}s") };
        return Err(Mistake::new(format!("`{}` is not a length of time", short(text)))
            .meant(meant)
            .help("a number and a unit: 500ms, 30s, 5m, 1h"));
    }
    let (times, unit) = period(text, 0..text.len())?;
    Ok(unit.times(times))
}

/// Recognizes rates in the syntax of other tools.
fn foreign_form(text: &str) -> Option<Mistake> {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    if let ["unlimited" | "none" | "infinite" | "off" | "blocked"] = words[..] {
        return Some(
            Mistake::new(format!("`{}` is not a rate", short(text)))
                .label("a limit needs a number here")
                .help("`unlimited` and `blocked` belong under `plans` or `overrides`; `mode: off` switches a limit off"),
        );
    }
    if let [count, "per" | "a" | "an" | "every", unit @ ..] = &words[..] {
        let meant = format!("{count}/{}", unit.concat());
        let meant = decimal::in_whole_numbers(&meant).or_else(|| RateText::parse(&meant).ok().map(|_| meant));
        let mistake = Mistake::new(format!("`{}` is not a rate", short(text))).help(EXAMPLES);
        return Some(match meant {
            Some(meant) => mistake.meant(meant),
            None => mistake,
        });
    }
    if let [count] = words[..]
        && whole_number(count).is_some()
    {
        return Some(
            Mistake::new("a rate needs a time")
                .meant(format!("{count}/minute"))
                .help("a number alone has no time; for concurrent requests use `slots`"),
        );
    }
    // 1,000/minute
    let head = text.split('/').next().unwrap_or("");
    let groups: Vec<&str> = head.split(',').map(str::trim).collect();
    // 1,5/minute is a fraction, not a grouped number.
    let grouped = groups.len() > 1
        && groups.iter().all(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
        && groups.iter().skip(1).all(|it| it.len() == 3);
    grouped.then(|| {
        Mistake::new("a number has no commas between thousands").at(0..head.len()).meant(groups.join("_"))
    })
}

/// Recognizes `1.5/second`, and suggests the equal rate in whole numbers.
fn fraction(text: &str) -> Option<Mistake> {
    let meant = decimal::in_whole_numbers(text)?;
    let end = decimal::rate_end(text);
    Some(
        Mistake::new(format!("`{}` is not in whole numbers", short(&text[..end])))
            .at(0..end)
            .meant(meant)
            .help("a rate has whole numbers only: for a fraction, take more units"),
    )
}

/// Parses a number that is written as a word.
fn spelled_out(text: &str) -> Option<u64> {
    let (number, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1_000),
        (at, 'm' | 'M') => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let (base, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let power = 10_u64.checked_pow(exponent.trim_start_matches('+').parse().ok()?)?;
    whole_number(base)?.checked_mul(power)?.checked_mul(factor)
}

fn count(text: &str, at: Range<usize>) -> Result<u64, Mistake> {
    let written = text[at.clone()].trim();
    let at = trimmed(text, at);
    match whole_number(written) {
        Some(0) => Err(Mistake::new("a rate of zero admits no request")
            .at(at)
            .label("at least 1")
            .help("to refuse callers, list them under `deny`, or as `blocked` under `overrides`")),
        Some(count) => Ok(count),
        None => Err(not_a_count(written).at(at)),
    }
}

fn not_a_count(written: &str) -> Mistake {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit() || it == b'_');
    if written.is_empty() {
        Mistake::new("the number of requests is missing")
            .label("a number is missing before the `/`")
            .help(EXAMPLES)
    } else if digits(written) && written.parse::<u64>().is_err() && !written.contains('_') {
        Mistake::new("this number is too large").label("more than any limiter can count")
    } else if written.starts_with('-') {
        Mistake::new("a rate cannot be negative").label("at least 1")
    } else if let Some(number) = spelled_out(written) {
        Mistake::new(format!("`{}` is not a whole number", short(written))).meant(number.to_string())
    } else if written.split_once('.').is_some_and(|(whole, part)| digits(whole) && digits(part)) {
        Mistake::new(format!("`{}` is not a whole number", short(written)))
            .label("whole numbers only")
            .help("for less than one in a unit, take more units: 1/2s is one every two seconds")
    } else {
        Mistake::new(format!("`{}` is not a whole number", short(written)))
            .help("digits only, with `_` between thousands if you like: 1_000_000/day")
    }
}

fn period(text: &str, at: Range<usize>) -> Result<(u64, Unit), Mistake> {
    let written = text[at.clone()].trim();
    let at = trimmed(text, at);
    let word = written.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    let (number, word) = (&written[..written.len() - word.len()], word.trim());
    let times = match number {
        "" => 1,
        _ => whole_number(number).ok_or_else(|| {
            Mistake::new("this number is too large").at(at.clone()).label("too long a time")
        })?,
    };
    let word_at = at.end - word.len()..at.end;
    let Some(unit) = unit_named(word) else {
        return Err(unknown_unit(word).at(word_at));
    };
    Ok((times, unit))
}

fn unknown_unit(word: &str) -> Mistake {
    if word.is_empty() {
        return Mistake::new("the unit of time is missing")
            .label("a unit is missing after the `/`")
            .help(UNIT_WORDS);
    }
    let mistake = Mistake::new(format!("`{}` is not a unit of time", short(word))).help(UNIT_WORDS);
    let together: String = word.split_whitespace().collect();
    let known = |word: &str| unit_named(word).is_some();
    if let Some((unit, rest)) = word.split_once(char::is_whitespace)
        && known(unit)
        && !known(&together)
    {
        return mistake.label(if rest.trim().starts_with("burst") {
            format!("a comma is missing: `{unit}, {}`", rest.trim())
        } else {
            format!("did you mean `{unit}`? only `, burst N` can follow it")
        });
    }
    match word {
        "M" | "mo" | "mon" => mistake.label("did you mean `month`, or `minute`?"),
        "y" | "yr" | "year" | "years" => mistake.meant("12 months"),
        "us" | "µs" | "ns" => mistake.label("the smallest unit is a millisecond"),
        _ => match nearest(&together, unit_words()) {
            Some(unit) => mistake.meant(unit),
            None => mistake,
        },
    }
}

/// Parses the text after the rate: nothing, or `, burst N`.
fn burst(text: &str, comma: usize) -> Result<(Option<u64>, Range<usize>), Mistake> {
    if comma == text.len() {
        return Ok((None, 0..text.len()));
    }
    let at = trimmed(text, comma + 1..text.len());
    let written = &text[at.clone()];
    let word = written.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    let number = written[word.len()..].trim_start();
    if word != "burst" {
        let mistake = Mistake::new(format!("`{}` cannot follow a rate", short(written))).at(at);
        return Err(match nearest(word, ["burst"]) {
            Some(_) => mistake.meant(format!("burst {number}")),
            None => mistake
                .label("only `burst N` can")
                .help("several rates on one limit are a list: windows: [10/second, 1000/hour]"),
        });
    }
    let number_at = at.end - number.len()..at.end;
    match whole_number(number) {
        Some(0) => {
            Err(Mistake::new("a burst below one request admits no request").at(at).label("at least 1"))
        }
        Some(burst) => Ok((Some(burst), at)),
        None if number.starts_with([':', '=']) => {
            let meant = format!("burst {}", number[1..].trim());
            Err(Mistake::new("write a blank between `burst` and its number").at(at).meant(meant))
        }
        None if number.starts_with("0.") || number.starts_with('-') => {
            Err(Mistake::new("a burst below one request admits no request").at(number_at).label("at least 1"))
        }
        None if number.is_empty() => {
            Err(Mistake::new("the size of the burst is missing").at(at).label("a number is missing"))
        }
        None => Err(not_a_count(number).at(number_at)),
    }
}

/// Returns the range without surrounding blanks.
fn trimmed(text: &str, at: Range<usize>) -> Range<usize> {
    let part = &text[at.clone()];
    let start = at.start + (part.len() - part.trim_start().len());
    start..start + part.trim().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_full_short_and_plural() {
        for (text, count, period) in [
            ("10/minute", 10, Span::from_secs(60)),
            ("5/2s", 5, Span::from_secs(2)),
            ("100/15m", 100, Span::from_minutes(15)),
            ("1000/hour", 1000, Span::from_hours(1)),
            ("50000/day", 50_000, Span::from_days(1)),
            ("1/month", 1, Span::from_days(30)),
            ("1/2 weeks", 1, Span::from_days(14)),
            ("1_000_000 / day", 1_000_000, Span::from_days(1)),
            ("3/250ms", 3, Span::from_millis(250)),
        ] {
            let rate = RateText::parse(text).unwrap();
            assert_eq!((rate.rate(), rate.burst), (Rate::new(count, period), None), "{text}");
        }
        assert_eq!(RateText::parse("1000/minute, burst 200").unwrap().burst, Some(200));
        assert_eq!(RateText::parse("1000/minute,burst 1_000").unwrap().burst, Some(1_000));
    }

    #[test]
    fn no_text_breaks_the_reader_and_suggestions_are_rates() {
        for text in
            ["/", ",", "1/", "/s", "é/é, é", "1/s,", "1/s, burst", "1e99/s", "k/s", "1e/s", "9 per", " / , "]
        {
            assert!(RateText::parse(text).is_err(), "{text}");
            assert!(parse_span(text).is_err(), "{text}");
        }
    }
}
