//! Compares a streamed JSON member name with an expected name.
//!
//! Names are compared after unescaping: `\u0061` is an `a`, and a surrogate pair is one character.
//! Only the length of the common prefix is kept.

/// A member name being read, after its opening quote.
#[derive(Clone, Copy)]
pub(super) struct Name {
    /// How many bytes of the expected name have matched; `None` after a mismatch.
    agreed: Option<usize>,
    escape: Escape,
    /// A high surrogate that must be followed by a low one.
    half: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    /// After a backslash.
    Begun,
    /// After `\u`: the number of digits, and their value.
    Digits(u32, u32),
}

impl Name {
    /// The start of a name that may match.
    pub(super) const CANDIDATE: Self = Self { agreed: Some(0), escape: Escape::None, half: None };
    /// A name that cannot match.
    pub(super) const MISMATCH: Self = Self { agreed: None, ..Self::CANDIDATE };

    /// Reads the next byte and returns whether it ends the name.
    pub(super) fn read(&mut self, byte: u8, wanted: &[u8]) -> bool {
        match (self.escape, byte) {
            (Escape::None, b'"') => return true,
            (Escape::None, b'\\') => self.escape = Escape::Begun,
            (Escape::None, _) => self.compare(&[byte], wanted),
            (Escape::Begun, b'u') if self.agreed.is_some() => self.escape = Escape::Digits(0, 0),
            (Escape::Begun, _) => {
                self.escape = Escape::None;
                match byte {
                    b'"' | b'\\' | b'/' => self.compare(&[byte], wanted),
                    b'b' => self.compare(b"\x08", wanted),
                    b'f' => self.compare(b"\x0c", wanted),
                    b'n' => self.compare(b"\n", wanted),
                    b'r' => self.compare(b"\r", wanted),
                    b't' => self.compare(b"\t", wanted),
                    _ => self.agreed = None,
                }
            }
            (Escape::Digits(count, sum), _) => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    // Not a valid escape.
                    *self = Self::MISMATCH;
                    return self.read(byte, wanted);
                };
                let sum = sum << 4 | digit;
                self.escape = if count == 3 { Escape::None } else { Escape::Digits(count + 1, sum) };
                if count == 3 {
                    self.unit(sum, wanted);
                }
            }
        }
        false
    }

    /// Whether the name, which has ended, equals the expected name.
    pub(super) fn is(self, wanted: &[u8]) -> bool {
        self.half.is_none() && self.agreed == Some(wanted.len())
    }

    /// Reads the UTF-16 code unit of an escape.
    fn unit(&mut self, unit: u32, wanted: &[u8]) {
        let whole = match (self.half.take(), unit) {
            (None, 0xd800..=0xdbff) => {
                self.half = Some(unit);
                return;
            }
            (None, _) => char::from_u32(unit),
            (Some(half), 0xdc00..=0xdfff) => {
                char::from_u32(0x1_0000 + ((half - 0xd800) << 10) + (unit - 0xdc00))
            }
            (Some(_), _) => None,
        };
        match whole {
            Some(char) => self.compare(char.encode_utf8(&mut [0; 4]).as_bytes(), wanted),
            // An unpaired surrogate matches no expected name.
            None => self.agreed = None,
        }
    }

    fn compare(&mut self, bytes: &[u8], wanted: &[u8]) {
        let is_whole = self.half.take().is_none();
        let goes_on = |at: &usize| is_whole && wanted.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
        self.agreed = self.agreed.filter(goes_on).map(|at| at + bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the name, as written between quotes, matches `wanted`.
    fn is(written: &str, wanted: &str) -> bool {
        let mut name = Name::CANDIDATE;
        let bytes = written.as_bytes();
        assert!(bytes.iter().all(|byte| !name.read(*byte, wanted.as_bytes())), "{written} does not end");
        assert!(name.read(b'"', wanted.as_bytes()), "{written} ends");
        name.is(wanted.as_bytes())
    }

    #[test]
    fn names_are_compared_after_unescaping() {
        for (written, wanted) in [
            ("usage", "usage"),
            (r"us\u0061ge", "usage"),
            (r"\u0075\u0073\u0061\u0067\u0065", "usage"),
            (r"stra\u00DFe", "straße"),
            ("straße", "straße"),
            (r"\u4f7f\u7528", "使用"),
            (r"\ud83d\ude00s", "😀s"),
            (r#"a\/\"\\\b\f\n\r\t"#, "a/\"\\\u{8}\u{c}\n\r\t"),
        ] {
            assert!(is(written, wanted), "{written}");
        }
    }

    #[test]
    fn different_names_do_not_match() {
        for written in [
            r"us\u0062ge",
            r"us\u0061g",
            r"us\u0061gee",
            r"us\x61ge",
            r"usage\ud83d",
            r"\ude00usage",
            r"\ud83dusage",
            r"\ud83d\u0075sage",
            r"us\ud83dage",
            r"us\ud83d\nage",
            r"\u00zzusage",
        ] {
            assert!(!is(written, "usage"), "{written}");
        }
        assert!(!is(r"\ud83d\ud83d\ude00", "😀"));
    }
}
