//! Durations in words, for texts that people read.
//!
//! Every human-readable text of Tollgate formats a duration with [`Span::human`]: explanations, the
//! detail of a refusal, the command line, the log. So all texts show the same wait alike.
//!
//! The value is rounded up to the last digit that is shown, so that a caller that waits for the
//! shown time has waited long enough. The last digit is coarser for longer spans: milliseconds
//! below a second, tenths below a minute, seconds below an hour, minutes below a day, hours beyond.
//!
//! The period of a rate is not a wait and is never rounded: [`Span::human_exact`].
//!
//! Headers and JSON carry plain numbers instead, and [`Span`]'s own `Display` is the notation of
//! the policy file (`90s`).

use alloc::string::String;
use core::fmt;

use super::Span;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Displays a [`Span`] in at most two units: `3.6 s`, `2 min 5 s`, `14 d 18 h`.
///
/// ```
/// # use tollgate_core::Span;
/// assert_eq!(Span::from_secs(1_272_924).human().to_string(), "14 d 18 h");
/// assert_eq!(Span::from_millis(3_600).human().to_string(), "3.6 s");
/// assert_eq!(Span::from_secs(90).human().to_string(), "1 min 30 s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanSpan {
    /// Rounded up to a multiple of `step`.
    micros: u64,
    step: u64,
}

impl Span {
    /// Returns this span in words for people, rounded up to the last digit that is shown.
    #[must_use]
    pub const fn human(self) -> HumanSpan {
        let micros = self.as_micros();
        let step = if round_up(micros, MILLI) < SECOND {
            MILLI
        } else if round_up(micros, SECOND / 10) < MINUTE {
            SECOND / 10
        } else if round_up(micros, SECOND) < HOUR {
            SECOND
        } else if round_up(micros, MINUTE) < DAY {
            MINUTE
        } else {
            HOUR
        };
        HumanSpan { micros: round_up(micros, step), step }
    }
}

impl HumanSpan {
    /// Returns the shown value in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// Returns the unit of the last shown digit in microseconds.
    pub const fn step_micros(self) -> u64 {
        self.step
    }
}

/// Displays a [`Span`] without rounding: up to an hour in the largest unit that keeps it whole
/// (`90 s`, `86.4 s`), above an hour in several units (`4 h 48 min`).
///
/// ```
/// # use tollgate_core::Span;
/// assert_eq!(Span::from_secs(90).human_exact().to_string(), "90 s");
/// assert_eq!(Span::from_secs(288 * 60).human_exact().to_string(), "4 h 48 min");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HumanExactSpan(u64);

impl Span {
    /// Returns this span in words for people, without rounding.
    #[must_use]
    pub const fn human_exact(self) -> HumanExactSpan {
        HumanExactSpan(self.as_micros())
    }
}

impl fmt::Display for HumanExactSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] =
            [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (MILLI, "ms"), (1, "µs")];
        if self.0 <= HOUR {
            let whole = UNITS.iter().find(|(size, _)| self.0 >= *size && self.0.is_multiple_of(*size));
            return match whole {
                Some((MILLI, _)) if self.0 > SECOND => {
                    let decimals = alloc::format!("{:03}", self.0 % SECOND / MILLI);
                    write!(f, "{}.{} s", self.0 / SECOND, decimals.trim_end_matches('0'))
                }
                Some((size, unit)) => write!(f, "{} {unit}", self.0 / size),
                None => f.write_str("0 s"),
            };
        }
        let mut rest = self.0;
        for (size, unit) in &UNITS {
            if rest >= *size {
                let space = if rest == self.0 { "" } else { " " };
                write!(f, "{space}{} {unit}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

const fn round_up(micros: u64, step: u64) -> u64 {
    micros.div_ceil(step).saturating_mul(step)
}

impl HumanSpan {
    /// Appends the words to a text, without the machinery of formatting: every refusal of a flood has such words.
    pub fn push_to(self, text: &mut String) {
        let (large, small) = match self.step {
            MILLI => return push_unit(self.micros / MILLI, "ms", text),
            SECOND => ((MINUTE, "min"), (SECOND, "s")),
            MINUTE => ((HOUR, "h"), (MINUTE, "min")),
            HOUR => ((DAY, "d"), (HOUR, "h")),
            _ => {
                let (whole, tenths) = (self.micros / SECOND, self.micros % SECOND / (SECOND / 10));
                if tenths == 0 {
                    return push_unit(whole, "s", text);
                }
                push_number(whole, text);
                text.push('.');
                return push_unit(tenths, "s", text);
            }
        };
        push_unit(self.micros / large.0, large.1, text);
        let rest = self.micros % large.0 / small.0;
        if rest > 0 {
            text.push(' ');
            push_unit(rest, small.1, text);
        }
    }
}

fn push_unit(count: u64, unit: &str, text: &mut String) {
    push_number(count, text);
    text.push(' ');
    text.push_str(unit);
}

fn push_number(number: u64, text: &mut String) {
    if number >= 10 {
        push_number(number / 10, text);
    }
    #[allow(clippy::cast_possible_truncation, reason = "a digit")]
    text.push(char::from(b'0' + (number % 10) as u8));
}

impl fmt::Display for HumanSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.push_to(&mut text);
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_rounded_up_to_the_last_digit_that_is_shown() {
        for (micros, text) in [
            (0, "0 ms"),
            (1, "1 ms"),
            (250_000, "250 ms"),
            (999_001, "1 s"),
            (3_600_000, "3.6 s"),
            (3_600_001, "3.7 s"),
            (59_900_001, "1 min"),
            (125_000_000, "2 min 5 s"),
            (3_599_000_001, "1 h"),
            (11_520_000_000, "3 h 12 min"),
            (86_399_000_000, "1 d"),
            (273_600_000_000, "3 d 4 h"),
            (1_272_924_000_000, "14 d 18 h"),
            (31_536_000_000_000, "365 d"),
        ] {
            assert_eq!(Span::from_micros(micros).human().to_string(), text, "{micros}");
        }
        assert!(Span::from_micros(u64::MAX).human().to_string().starts_with("213503982 d"));
    }

    #[test]
    fn an_exact_span_is_not_rounded_and_reads_in_hours_above_an_hour() {
        for (micros, text) in [
            (0, "0 s"),
            (1, "1 µs"),
            (250_000, "250 ms"),
            (86_400_000, "86.4 s"),
            (90_000_000, "90 s"),
            (1_000_003, "1000003 µs"),
            (3_540_000_000, "59 min"),
            (3_600_000_000, "1 h"),
            (5_400_000_000, "1 h 30 min"),
            (7_200_000_000, "2 h"),
            (17_280_000_000, "4 h 48 min"),
            (86_400_000_000, "1 d"),
            (91_800_000_001, "1 d 1 h 30 min 1 µs"),
            (604_800_000_000, "7 d"),
        ] {
            assert_eq!(Span::from_micros(micros).human_exact().to_string(), text, "{micros}");
        }
        assert!(Span::from_micros(u64::MAX).human_exact().to_string().starts_with("213503982 d 8 h"));
    }

    #[test]
    fn spans_above_an_hour_omit_seconds_and_no_span_is_rounded_down() {
        for exponent in 0..64 {
            for micros in [(1_u64 << exponent) - 1, 1 << exponent, (1 << exponent) + 12_345] {
                let human = Span::from_micros(micros).human();
                assert!(human.as_micros() >= micros || micros > u64::MAX - HOUR, "{micros}");
                let text = human.to_string();
                assert!(micros <= HOUR || !text.ends_with(" s"), "{micros}: {text}");
            }
        }
    }
}
