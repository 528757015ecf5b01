//! The decodings that servers apply to a path before they split it into segments.
//!
//! A decoding determines the characters that separate segments, those that are removed and those
//! that end the path. `readings` handles dot segments and empty segments.
//!
//! A percent sign is decoded once: `%252F` is the text `%2F` in every decoding. [`is_escaped_twice`]
//! tells such a path apart, for policies that refuse it.

use crate::settings::PathReading;

/// A set of steps that a server performs before it splits a path into segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decoding(u8);

/// `%2F` separates segments: nginx, WSGI and ASGI servers, PHP.
const SLASH: u8 = 1;
/// `\` separates segments, and `%5C` where escapes are decoded: URL parsers of the WHATWG
/// standard, IIS and other servers on Windows.
const BACKSLASH: u8 = 1 << 1;
/// `;` up to the next `/` is removed, before escapes are decoded: servlet containers.
const RAW_PARAMETERS: u8 = 1 << 2;
/// `;` up to the next separator is removed, after escapes are decoded.
const PARAMETERS: u8 = 1 << 3;
/// `%3F` and `%23` end the path: proxies that pass on a decoded path, URL parsers behind a decoder.
const END: u8 = 1 << 4;
/// `%u002F` and overlong UTF-8 (`%C0%AF`) are decoded: IIS, old Java.
const LEGACY: u8 = 1 << 5;
/// `%00` ends the path: C strings.
const NUL: u8 = 1 << 6;
/// Tabs and line breaks are removed: URL parsers (WHATWG, Python's `urlsplit`) behind a decoder.
const STRIP: u8 = 1 << 7;

impl Decoding {
    /// Escapes of separators are text, as in RFC 3986.
    pub(super) const LITERAL: Self = Self(0);

    /// Returns the decodings under which this path may have several readings, the literal one first.
    pub(super) fn all(path: &[u8], reading: PathReading) -> impl Iterator<Item = Self> + Clone {
        let (base, disputed) = match reading {
            PathReading::Any => (0, disputed_steps(path)),
            PathReading::Literal => (0, 0),
            PathReading::Decoded => (SLASH, 0),
            PathReading::Servlet => (SLASH | RAW_PARAMETERS, 0),
        };
        // Every subset of the disputed steps, starting with the empty set.
        let subsets = std::iter::successors(Some(0_u8), move |subset| {
            let next = subset.wrapping_sub(disputed) & disputed;
            (next != 0).then_some(next)
        });
        subsets.map(move |subset| Self(base | subset)).filter(|it| it.is_plausible())
    }

    /// Parameters are removed once. Legacy escapes are decoded, and tabs removed, by servers that
    /// decode all other escapes.
    const fn is_plausible(self) -> bool {
        let Self(steps) = self;
        steps & (RAW_PARAMETERS | PARAMETERS) != RAW_PARAMETERS | PARAMETERS
            && (steps & LEGACY == 0 || steps & (SLASH | BACKSLASH) == SLASH | BACKSLASH)
            && (steps & STRIP == 0 || steps & SLASH != 0)
    }

    const fn takes(self, step: u8) -> bool {
        self.0 & step != 0
    }

    /// Returns the path with normalized characters and `/` between segments. Dot segments
    /// and empty segments are kept.
    pub(super) fn write(self, path: &str) -> String {
        let bytes = path.as_bytes();
        let mut out = String::with_capacity(bytes.len() + 1);
        let (mut at, mut in_parameter) = (0, false);
        while at < bytes.len() {
            let Character { byte, width, escaped } = Character::first(&bytes[at..], self.takes(LEGACY));
            at += width;
            if self.takes(STRIP) && matches!(byte, b'\t' | b'\n' | b'\r') {
                continue;
            }
            let separates = match byte {
                b'/' => !escaped || self.takes(SLASH),
                b'\\' => self.takes(BACKSLASH) && (!escaped || self.takes(SLASH)),
                _ => false,
            };
            let ends = match byte {
                b'?' | b'#' => self.takes(END),
                0 => self.takes(NUL),
                _ => false,
            };
            if ends && escaped {
                // Parameters that are removed first take the escape along.
                if in_parameter && self.takes(RAW_PARAMETERS) {
                    continue;
                }
                break;
            }
            // Parameters that are removed before decoding end at a plain slash only.
            let is_slash = byte == b'/' && !escaped;
            if separates && (is_slash || !(in_parameter && self.takes(RAW_PARAMETERS))) {
                in_parameter = false;
                out.push('/');
                continue;
            }
            let begins_parameter =
                byte == b';' && (self.takes(PARAMETERS) || (self.takes(RAW_PARAMETERS) && !escaped));
            in_parameter |= begins_parameter;
            if !in_parameter {
                push_spelled(&mut out, byte, escaped);
            }
        }
        out
    }
}

/// Returns the steps that change this path.
fn disputed_steps(path: &[u8]) -> u8 {
    let mut steps = 0;
    let mut has_semicolon = false;
    for (at, byte) in path.iter().enumerate() {
        match byte {
            b'\\' => steps |= BACKSLASH,
            b';' => has_semicolon = true,
            b'\t' | b'\n' | b'\r' => steps |= SLASH | STRIP,
            b'%' => match escape(&path[at..]) {
                Some(b'/') => steps |= SLASH,
                Some(b'\\') => steps |= SLASH | BACKSLASH,
                Some(b';') => steps |= PARAMETERS,
                Some(b'?' | b'#') => steps |= END,
                Some(0) => steps |= NUL,
                Some(b'\t' | b'\n' | b'\r') => steps |= SLASH | STRIP,
                _ if legacy_escape(&path[at..]).is_some() => steps |= SLASH | BACKSLASH | PARAMETERS | LEGACY,
                _ => {}
            },
            _ => {}
        }
    }
    if has_semicolon {
        steps |= RAW_PARAMETERS;
        // A separator of another kind after the semicolon ends the parameter or is part of it.
        if steps & (SLASH | BACKSLASH) != 0 {
            steps |= PARAMETERS;
        }
    }
    steps
}

/// One character of a path.
struct Character {
    byte: u8,
    /// The number of bytes of the path that the character takes.
    width: usize,
    /// Whether the character was escaped. A `%` that begins no escape counts as escaped.
    escaped: bool,
}

impl Character {
    /// Returns the first character of a non-empty text.
    fn first(text: &[u8], legacy: bool) -> Self {
        let written = text.first().copied().unwrap_or_default();
        if written != b'%' {
            return Self { byte: written, width: 1, escaped: false };
        }
        let decoded = legacy.then(|| legacy_escape(text)).flatten();
        let (byte, width) = decoded.or_else(|| Some((escape(text)?, 3))).unwrap_or((b'%', 1));
        Self { byte, width, escaped: true }
    }
}

/// Whether a path still has escapes after it is decoded once: `%252E`, `%%32%65`, `%25u002F`. A server
/// that decodes it twice takes it for another path.
pub(super) fn is_escaped_twice(path: &str) -> bool {
    // The last decoded bytes: an escape has three, `%u002F` has six.
    let mut last = [0; 6];
    let mut rest = path.as_bytes();
    while !rest.is_empty() {
        let Character { byte, width, .. } = Character::first(rest, false);
        rest = &rest[width..];
        last.rotate_left(1);
        last[5] = byte;
        if escape(&last[3..]).is_some() || legacy_escape(&last).is_some() {
            return true;
        }
    }
    false
}

/// Appends a character in its normal spelling: unescaped if that has the same meaning.
fn push_spelled(out: &mut String, byte: u8, escaped: bool) {
    if (escaped && !is_plain_in_segment(byte)) || !byte.is_ascii_graphic() {
        push_escape(out, byte);
    } else {
        out.push(char::from(byte));
    }
}

/// Appends `%XX`.
pub(super) fn push_escape(out: &mut String, byte: u8) {
    out.push('%');
    out.extend([byte >> 4, byte & 15].map(|half| char::from(b"0123456789ABCDEF"[usize::from(half)])));
}

/// Returns the byte of a leading `%XX`.
pub(crate) fn escape(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    }
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Returns the ASCII character of a leading `%u00XX` or overlong sequence, and its length in
/// bytes.
fn legacy_escape(bytes: &[u8]) -> Option<(u8, usize)> {
    if let [b'%', b'u' | b'U', b'0', b'0', high, low, ..] = bytes {
        let byte = hex(*high)? << 4 | hex(*low)?;
        return byte.is_ascii().then_some((byte, 6));
    }
    let tail =
        |at: usize| escape(bytes.get(at..)?).filter(|byte| byte & 0xC0 == 0x80).map(|byte| byte & 0x3F);
    match escape(bytes)? {
        lead @ (0xC0 | 0xC1) => Some(((lead & 1) << 6 | tail(3)?, 6)),
        0xE0 => {
            let (middle, last) = (tail(3)?, tail(6)?);
            (middle < 2).then_some((middle << 6 | last, 9))
        }
        _ => None,
    }
}

/// Whether a character has the same meaning escaped and unescaped. RFC 3986 guarantees this
/// for unreserved characters only. But handlers see decoded segments, so `@` and `%40` are
/// equal to them and must be equal to a limit.
pub(super) fn is_plain_in_segment(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &[&str]) {
        let mut found = Vec::new();
        for decoding in Decoding::all(path.as_bytes(), PathReading::Any) {
            let text = decoding.write(path);
            if !found.contains(&text) {
                found.push(text);
            }
        }
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn a_path_is_written_out_under_every_decoding() {
        check("/a%20b/c", &["/a%20b/c"]);
        check("/a%2fb", &["/a%2Fb", "/a/b"]);
        check("/a%252fb", &["/a%252fb"]);
        check("/a\\b", &["/a\\b", "/a/b"]);
        check("/a%5cb", &["/a%5Cb", "/a/b"]);
        check("/a;x=1/b", &["/a;x=1/b", "/a/b"]);
        check("/a%3bx/b", &["/a;x/b", "/a/b"]);
        check("/a;x%2fy/b", &["/a;x%2Fy/b", "/a;x/y/b", "/a/b", "/a/y/b"]);
        check("/login%00.txt", &["/login%00.txt", "/login"]);
        check("/login%3fx", &["/login%3Fx", "/login"]);
        check("/login%23x", &["/login%23x", "/login"]);
    }

    #[test]
    fn a_path_that_is_escaped_twice_still_has_an_escape_when_it_is_decoded() {
        for path in
            ["/%252e%252e/a", "/a%252Fb", "/a%25252fb", "/%%32%65", "/%25%32%66", "/a%25u002fb", "/%2541"]
        {
            assert!(is_escaped_twice(path), "{path}");
        }
        for path in ["/a", "/a%20b", "/100%25", "/100%", "/a%2fb", "/a%25zb", "/a%252", "/%25u00", ""] {
            assert!(!is_escaped_twice(path), "{path}");
        }
    }

    #[test]
    fn escapes_of_old_servers_are_decoded_beside_the_others() {
        for path in ["/a%u002fb", "/a%c0%afb", "/a%C0%af%62", "/a%e0%80%afb", "/a%u005cb", "/a%c1%9cb"] {
            let mut texts = Decoding::all(path.as_bytes(), PathReading::Any).map(|it| it.write(path));
            assert!(texts.any(|text| text == "/a/b"), "{path}");
        }
        check("/caf%c3%a9", &["/caf%C3%A9"]);
        check("/%e0%a0%80", &["/%E0%A0%80"]);
    }

    #[test]
    fn a_declared_reading_is_the_only_one() {
        let path = "/a;x%2fy\\z/b%2fc";
        for (reading, expected) in [
            (PathReading::Literal, "/a;x%2Fy\\z/b%2Fc"),
            (PathReading::Decoded, "/a;x/y\\z/b/c"),
            (PathReading::Servlet, "/a/b/c"),
        ] {
            let found: Vec<_> = Decoding::all(path.as_bytes(), reading).map(|it| it.write(path)).collect();
            assert_eq!(found, [expected], "{reading:?}");
        }
    }
}
