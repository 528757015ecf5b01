//! Converts the bytes of a log to text: resolves escapes and ensures UTF-8.
//!
//! Bytes that are not UTF-8 are percent-encoded (`%FF`). Different texts stay different, unless one of them contains
//! such an escape literally, and a path keeps its meaning.

use std::borrow::Cow;
use std::fmt::Write as _;

use tollgate_document::sanitize::printable;

/// Appends bytes as text.
pub(super) fn append(text: &mut String, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(valid) => text.push_str(valid),
        Err(_) => {
            for chunk in bytes.utf8_chunks() {
                text.push_str(chunk.valid());
                for byte in chunk.invalid() {
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
    }
}

/// Returns bytes as text.
pub(super) fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 64);
    append(&mut text, bytes);
    text
}

/// Resolves the escapes of nginx (`\x22`) and Apache (`\"`, `\\`, `\n`, `\x16`).
pub(super) fn unescaped(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', bytes) else { return Cow::Borrowed(bytes) };
    let mut plain = Vec::with_capacity(bytes.len());
    let (head, mut rest) = bytes.split_at(first);
    plain.extend_from_slice(head);
    loop {
        let (byte, after) = match rest {
            [] => return Cow::Owned(plain),
            [b'\\', b'x', high, low, behind @ ..] => match hex(*high, *low) {
                Some(byte) => (byte, behind),
                None => (b'\\', &rest[1..]),
            },
            [b'\\', b'"', after @ ..] => (b'"', after),
            [b'\\', b'\\', after @ ..] => (b'\\', after),
            [b'\\', b'n', after @ ..] => (b'\n', after),
            [b'\\', b'r', after @ ..] => (b'\r', after),
            [b'\\', b't', after @ ..] => (b'\t', after),
            [byte, after @ ..] => (*byte, after),
        };
        plain.push(byte);
        rest = after;
    }
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Returns the printable beginning of a line, for messages.
pub(super) fn sample(line: &[u8]) -> String {
    const MAX_SAMPLE_CHARS: usize = 120;
    let start = &line[..line.len().min(4 * MAX_SAMPLE_CHARS)];
    let text = String::from_utf8_lossy(start);
    let start: String = text.chars().take(MAX_SAMPLE_CHARS).collect();
    let mut shown = printable(&start);
    if text.chars().nth(MAX_SAMPLE_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_nginx_and_apache_are_resolved_and_others_kept() {
        let cases: [(&str, &[u8]); 9] = [
            ("plain", b"plain"),
            (r"a\x22b", b"a\"b"),
            (r#"a\"b"#, b"a\"b"),
            (r"a\\b", b"a\\b"),
            (r"\x16\x03\xff", b"\x16\x03\xff"),
            (r"..\windows\xzz", br"..\windows\xzz"),
            (r"tab\tend\n", b"tab\tend\n"),
            (r"end\", b"end\\"),
            (r"\x5", br"\x5"),
        ];
        for (written, meant) in cases {
            assert_eq!(&*unescaped(written.as_bytes()), meant, "{written}");
        }
    }

    #[test]
    fn different_bytes_that_are_not_utf8_stay_different() {
        assert_eq!(lossless("grün".as_bytes()), "grün");
        assert_eq!(lossless(b"gr\xfcn"), "gr%FCn");
        assert_ne!(lossless(b"\xfe"), lossless(b"\xff"));
    }

    #[test]
    fn a_sample_is_one_printable_line() {
        let shown = sample(b"\x16\x03\x01 \"x\"\n\xff");
        assert!(!shown.contains(char::is_control), "{shown}");
        assert!(shown.contains("\"x\""), "{shown}");
        assert_eq!(sample(br"\x22"), r"\x22");
        assert_eq!(sample(&[b'a'; 5_000]).chars().count(), 121);
    }
}
