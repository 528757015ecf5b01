//! Converts a streamed decimal number of any length to units.
//!
//! Fractions are rounded up. Values above the maximum saturate. Negative numbers are not valid.

/// The number of significant digits that are kept: more than any number of units has.
const MAX_DIGITS: u32 = 30;
/// The bound of exponents; larger exponents do not change the result.
const MAX_EXPONENT: i64 = i64::MAX / 4;

/// A number of which a prefix has been read.
#[derive(Clone, Copy)]
pub(super) struct Number {
    part: Part,
    /// Whether the current part has a digit.
    has_digit: bool,
    is_negative: bool,
    /// The value of the first digits, and their number.
    kept: u128,
    count: u32,
    /// Whether one of the dropped digits is not zero.
    has_more: bool,
    /// The power of ten of the kept digits, without the exponent.
    power: i64,
    exponent: i64,
    /// 1, or -1 if the exponent is negative.
    sign: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Fraction,
    /// After the `e`: a sign may follow.
    Sign,
    Exponent,
    /// The input is not a number.
    Broken,
}

impl Number {
    /// Starts with a digit or a minus.
    pub(super) fn begin(byte: u8) -> Self {
        let mut number = Self {
            part: Part::Whole,
            has_digit: false,
            is_negative: byte == b'-',
            kept: 0,
            count: 0,
            has_more: false,
            power: 0,
            exponent: 0,
            sign: 1,
        };
        if byte != b'-' {
            number.read(byte);
        }
        number
    }

    /// Reads the next byte of the number.
    pub(super) fn read(&mut self, byte: u8) {
        match (self.part, byte) {
            (Part::Whole | Part::Fraction, b'0'..=b'9') => self.digit(byte - b'0'),
            (Part::Sign | Part::Exponent, b'0'..=b'9') => {
                let exponent = self.exponent.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
                (self.part, self.has_digit) = (Part::Exponent, true);
                self.exponent = exponent.min(MAX_EXPONENT);
            }
            (Part::Whole, b'.') if self.has_digit => self.begin_part(Part::Fraction),
            (Part::Whole | Part::Fraction, b'e' | b'E') if self.has_digit => self.begin_part(Part::Sign),
            (Part::Sign, b'+' | b'-') => {
                self.sign = if byte == b'-' { -1 } else { 1 };
                self.begin_part(Part::Exponent);
            }
            _ => self.part = Part::Broken,
        }
    }

    const fn begin_part(&mut self, part: Part) {
        (self.part, self.has_digit) = (part, false);
    }

    fn digit(&mut self, digit: u8) {
        self.has_digit = true;
        let is_kept = self.count < MAX_DIGITS;
        if is_kept {
            self.kept = self.kept * 10 + u128::from(digit);
            self.count += u32::from(self.kept > 0);
        } else {
            self.has_more |= digit > 0;
        }
        self.power += match (self.part, is_kept) {
            (Part::Whole, false) => 1,
            (Part::Fraction, true) => -1,
            _ => 0,
        };
    }

    /// Returns the units of the complete number.
    pub(super) fn units(self) -> Option<u64> {
        if self.part == Part::Broken || !self.has_digit || (self.is_negative && self.kept > 0) {
            return None;
        }
        let power = self.power.saturating_add(self.sign * self.exponent);
        let scale = u32::try_from(power.unsigned_abs()).ok().and_then(|it| 10_u128.checked_pow(it));
        let (whole, has_fraction) = match scale {
            _ if self.kept == 0 => (0, false),
            Some(scale) if power >= 0 => (self.kept.saturating_mul(scale), self.has_more),
            Some(scale) => (self.kept / scale, !self.kept.is_multiple_of(scale) || self.has_more),
            None if power >= 0 => (u128::MAX, false),
            None => (0, true),
        };
        Some(u64::try_from(whole.saturating_add(u128::from(has_fraction))).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, expected: Option<u64>) {
        let (first, rest) = written.as_bytes().split_first().unwrap();
        let mut number = Number::begin(*first);
        for byte in rest {
            number.read(*byte);
        }
        assert_eq!(number.units(), expected, "{written}");
    }

    #[test]
    fn numbers_of_any_length_are_converted_to_units() {
        let zeros = "0".repeat(400);
        for (written, expected) in [
            ("1".repeat(41), u64::MAX),
            (format!("1{zeros}"), u64::MAX),
            (format!("{zeros}7"), 7),
            (format!("12.{zeros}"), 12),
            (format!("12.{zeros}1"), 13),
            (format!("0.{zeros}1"), 1),
            (format!("0.{zeros}"), 0),
            (format!("0.{zeros}25e402"), 25),
            (format!("25{zeros}e-400"), 25),
            (format!("25{zeros}1e-401"), 26),
            (format!("1e{zeros}2"), 100),
            (format!("18446744073709551614.{zeros}1"), u64::MAX),
            (format!("9007199254740992.{zeros}1"), 9_007_199_254_740_993),
            ("0.1000000000000000055511151231257827021181583404541015625".to_owned(), 1),
            (format!("1e{}", "9".repeat(50)), u64::MAX),
            (format!("1e-{}", "9".repeat(50)), 1),
            (format!("0e{}", "9".repeat(50)), 0),
            (format!("-{zeros}"), 0),
        ] {
            check(&written, Some(expected));
        }
    }

    #[test]
    fn negative_and_malformed_numbers_are_refused() {
        for written in
            ["-1", "-0.1", "-1e-999", "-", "1.", "1e", "1e+", "1-2", "1.2.3", "1e2.5", "1e2e3", "--1", "-.5"]
        {
            check(written, None);
        }
        check(&format!("-{}", "1".repeat(50)), None);
    }

    #[test]
    fn the_result_equals_float_arithmetic_where_that_is_exact() {
        for tenths in 0..2_000_u32 {
            for exponent in -3_i32..4 {
                let written = format!("{}.{}e{exponent}", tenths / 10, tenths % 10);
                let value = f64::from(tenths) * 10_f64.powi(3 + exponent);
                // Multiples of 1/10,000, which a float represents exactly.
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small and not negative"
                )]
                let expected = (value.round() as u64).div_ceil(10_000);
                check(&written, Some(expected));
            }
        }
    }
}
