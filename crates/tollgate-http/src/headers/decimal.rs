//! The decimal digits of numbers, computed in a register.
//!
//! A table of digits writes them to memory one by one, and a copy of several recent writes waits until all of them have
//! arrived in the cache. The nine numbers in the headers of three limits took a tenth of the time of all headers that way.

/// The numbers below have at most eight digits.
pub(super) const EIGHT_DIGITS: u64 = 100_000_000;

/// Returns the last eight digits of a number below [`EIGHT_DIGITS`], with leading zeros.
#[inline]
pub(super) const fn eight_digits(number: u64) -> [u8; 8] {
    (digits(number) | ZEROS).to_le_bytes()
}

/// Returns the digits of a number below [`EIGHT_DIGITS`], followed by other bytes, and their count.
#[inline]
pub(super) const fn short_digits(number: u64) -> ([u8; 8], usize) {
    let digits = digits(number);
    // The first digit is in the lowest byte. Zero has one digit.
    let leading = (digits | 1 << 56).trailing_zeros() / 8;
    (((digits | ZEROS) >> (8 * leading)).to_le_bytes(), 8 - leading as usize)
}

/// The character `0`, eight times.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Returns the digits of a number, one in each byte, the first in the lowest. All parts of the number are divided
/// together: into two parts of four digits, four of two, and eight of one.
#[inline]
const fn digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    // Below 10,000, this is a division by 100.
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | ((fours - 100 * hundreds) << 16);
    // Below 100, this is a division by 10.
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((twos - 10 * tens) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        // Every part of four digits, in both places, and the bounds of each length.
        let parts = (0..10_000).flat_map(|part| [part, part * 10_000, part * 10_001]);
        let bounds = (0..8).map(|power| 10_u64.pow(power)).flat_map(|it| [it - 1, it, it + 1]);
        for number in parts.chain(bounds).chain([EIGHT_DIGITS - 1]) {
            let (digits, length) = short_digits(number);
            assert_eq!(digits[..length], *number.to_string().as_bytes(), "{number}");
            assert_eq!(eight_digits(number), *format!("{number:08}").as_bytes());
        }
    }
}
