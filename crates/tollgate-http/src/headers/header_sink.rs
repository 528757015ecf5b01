//! The destination of rate-limit headers: values for a header map, or lines of HTTP/1.1.
//!
//! Names and values are written once, by code that is generic over the sink, so both forms of a response have the same
//! headers.

use http::{HeaderName, HeaderValue};

use super::decimal::{EIGHT_DIGITS, eight_digits, short_digits};

/// The length of the longest name with the `: ` after it.
const MAX_NAME_BYTES: usize = 32;

/// The name of a header, in both forms.
pub(super) struct FieldName {
    pub(super) name: HeaderName,
    /// The name and `: `, followed by zeros: a copy of constant length is no call of `memcpy`.
    line: [u8; MAX_NAME_BYTES],
    length: usize,
    /// One bit, chosen by a hash of the name: different bits are different names.
    mark: u64,
}

impl FieldName {
    /// Creates a name in lower case from its line, such as `via: `. A longer one than the maximum does not compile.
    pub(super) const fn new(line: &'static str) -> Self {
        let (bytes, mut padded, mut at) = (line.as_bytes(), [0; MAX_NAME_BYTES], 0);
        let mut hash = 0_u64;
        while at < bytes.len() {
            padded[at] = bytes[at];
            hash = (hash.rotate_left(5) ^ bytes[at] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            at += 1;
        }
        assert!(bytes[at - 2] == b':' && bytes[at - 1] == b' ', "a name ends in a colon and a space");
        let name = HeaderName::from_static(line.split_at(at - 2).0);
        Self { name, line: padded, length: at, mark: 1 << (hash >> 58) }
    }

    /// Returns one bit of the name. Most names differ in it.
    #[inline]
    pub(super) const fn mark(&self) -> u64 {
        self.mark
    }

    /// Appends the name and `: `.
    #[inline]
    pub(super) fn write(&self, lines: &mut Vec<u8>) {
        let end = lines.len() + self.length;
        lines.extend_from_slice(&self.line);
        lines.truncate(end);
    }
}

/// A destination of headers.
pub(super) trait HeaderSink {
    /// Starts a header.
    fn start(&mut self, name: &'static FieldName);

    /// Ends the header. An empty value produces no header, as for structured fields (RFC 9651, 3.1).
    fn end(&mut self);

    /// Adds a header whose value exists already. An empty value produces no header.
    fn add(&mut self, name: &'static FieldName, value: &HeaderValue);

    /// Returns the buffer that the current value is at the end of.
    fn text(&mut self) -> &mut Vec<u8>;

    /// Whether the current value is still empty.
    fn is_blank(&self) -> bool;

    /// Appends to the current value.
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.text().extend_from_slice(bytes);
    }

    /// Appends to the current value.
    #[inline]
    fn raw(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Appends the digits of a number to the current value.
    #[inline]
    fn number(&mut self, number: u64) {
        push_number(self.text(), number);
    }

    /// Adds a header whose value is a number.
    #[inline]
    fn number_for(&mut self, name: &'static FieldName, number: u64) {
        self.start(name);
        self.number(number);
        self.end();
    }

    /// Adds a header whose value is a text.
    fn text_for(&mut self, name: &'static FieldName, value: &str) {
        self.bytes_for(name, value.as_bytes());
    }

    /// Adds a header whose value is these bytes.
    #[inline]
    fn bytes_for(&mut self, name: &'static FieldName, value: &[u8]) {
        self.start(name);
        self.bytes(value);
        self.end();
    }
}

/// Appends the digits of a number.
#[inline]
pub(crate) fn push_number(text: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        // Half of the numbers in headers: limits that are used up, and short waits.
        Ok(digit @ 0..=9) => text.push(b'0' + digit),
        _ => push_digits(text, number),
    }
}

fn push_digits(text: &mut Vec<u8>, number: u64) {
    if number < EIGHT_DIGITS {
        // Adds eight bytes and removes the excess: a copy of variable length would be a call of `memcpy`.
        let (digits, length) = short_digits(number);
        let end = text.len() + length;
        text.extend_from_slice(&digits);
        text.truncate(end);
    } else {
        push_long_number(text, number);
    }
}

fn push_long_number(text: &mut Vec<u8>, number: u64) {
    push_number(text, number / EIGHT_DIGITS);
    text.extend_from_slice(&eight_digits(number % EIGHT_DIGITS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_same_letters_in_both_forms() {
        static NAME: FieldName = FieldName::new("x-ratelimit-remaining-requests: ");
        let mut lines = b"before ".to_vec();
        NAME.write(&mut lines);
        assert_eq!(lines, b"before x-ratelimit-remaining-requests: ");
        assert_eq!(NAME.name, "x-ratelimit-remaining-requests");
    }

    #[test]
    fn numbers_of_any_length_are_written() {
        let bounds = (0..20).map(|power| 10_u64.pow(power)).flat_map(|it| [it - 1, it, it + 1]);
        for number in bounds.chain([7, 255, 256, 999_999_999_999_999, u64::MAX]) {
            let mut text = b"a".to_vec();
            push_number(&mut text, number);
            assert_eq!(text, format!("a{number}").as_bytes());
        }
    }
}
