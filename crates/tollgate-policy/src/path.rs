//! Normalizes paths.
//!
//! `/login`, `//login`, `/./login/`, `/%6Cogin` and `/x/../login` reach the same
//! handler in most servers, so the same limit must apply. A gateway must
//! forward the form that was matched; otherwise a caller can exploit the difference.
//!
//! - Escapes of characters that are allowed in a segment are decoded, others are
//!   written in upper case (RFC 3986, 6.2.2); a `%` that begins no escape becomes `%25`.
//! - Blanks, control characters and non-ASCII characters become escapes.
//! - Empty and `.` segments are removed, `..` is removed with its predecessor.
//! - A trailing slash is removed, except in `/` itself.
//!
//! Case, `;parameters`, and `%2F` (which never becomes a separator) stay as they are. Some servers
//! interpret these differently: [`Readings`] contains every possible interpretation.
//!
//! Invariant: normalization is idempotent. Tested by `tests/matching.rs`.

mod case;
mod decoding;
mod readings;

use std::borrow::Cow;

pub(crate) use case::{fold, fold_text};
use decoding::Decoding;
pub(crate) use decoding::escape;
use decoding::is_plain_in_segment;
pub use readings::{Readings, without_dot_segments};

use crate::settings::PathSettings;

/// Returns the normal form of a path; borrowed if it is normal already. A query or
/// fragment is removed.
///
/// ```
/// # use tollgate_policy::path::normal;
/// assert_eq!(normal("/api//v1/./x/../%6Cogin/"), "/api/v1/login");
/// assert_eq!(normal("/a%2fb"), "/a%2Fb");            // one segment, not two
/// assert!(matches!(normal("/api/v1/login"), std::borrow::Cow::Borrowed(_)));
/// ```
#[inline]
pub fn normal(path: &str) -> Cow<'_, str> {
    if is_plain(path.as_bytes()) { Cow::Borrowed(path) } else { normalized(path) }
}

/// Returns the path itself, if it certainly has one reading that equals the path as received.
#[inline]
pub(crate) fn plain(path: &str, settings: PathSettings) -> Option<&str> {
    let bytes = path.as_bytes();
    (is_plain(bytes) && !(settings.ignore_case && case::has_upper_case(bytes))).then_some(path)
}

/// Whether a path is certainly normal and has one reading. May return false for a normal path.
#[inline]
fn is_plain(path: &[u8]) -> bool {
    let [b'/', rest @ ..] = path else { return false };
    if rest.is_empty() {
        return true;
    }
    // Every byte with the byte before it, in blocks; the last block overlaps the one before.
    let before = &path[..rest.len()];
    let last = before.last_chunk::<BLOCK_BYTES>().zip(rest.last_chunk());
    let is_odd = if let Some((last_before, last)) = last {
        let blocks = before.as_chunks().0.iter().zip(rest.as_chunks().0);
        blocks.fold(has_odd(last_before, last), |found, (before, block)| found | has_odd(before, block))
    } else {
        // Letters fill the only block.
        let mut padded = [b'a'; BLOCK_BYTES + 1];
        padded[..path.len()].copy_from_slice(path);
        padded.first_chunk().zip(padded.last_chunk()).is_some_and(|(before, block)| has_odd(before, block))
    };
    !is_odd && !matches!(rest.last(), Some(b'/' | b'.'))
}

/// Bytes that are tested together: one vector register.
const BLOCK_BYTES: usize = 16;

/// Whether any byte of a block is odd. The loop has no branches and a fixed length, so the compiler
/// makes it a few vector instructions.
#[inline]
fn has_odd(before: &[u8; BLOCK_BYTES], block: &[u8; BLOCK_BYTES]) -> bool {
    let pairs = before.iter().zip(block);
    pairs.fold(0, |found, (&before, &byte)| found | u8::from(is_odd(before, byte))) != 0
}

/// Whether a byte may have several meanings, or may be part of a dot segment or an empty segment.
#[inline]
#[allow(clippy::needless_bitwise_bool, reason = "a lazy operator is a branch")]
const fn is_odd(before: u8, byte: u8) -> bool {
    // `//`, `/.` and `./`: a dot and a slash differ in one bit.
    const fn is_either(byte: u8) -> bool {
        (byte | (b'.' ^ b'/')) == b'/'
    }
    let is_odd_pair = is_either(before) & is_either(byte) & ((before | byte) == b'/');
    // `;` and `?` differ in one bit.
    let is_disputed = (byte == b'%') | (byte == b'#') | (byte == b'\\') | ((byte | (b';' ^ b'?')) == b'?');
    !byte.is_ascii_graphic() | is_disputed | is_odd_pair
}

fn normalized(path: &str) -> Cow<'_, str> {
    match first_odd(path.as_bytes()) {
        None => Cow::Borrowed(path),
        Some(at) if matches!(path.as_bytes().get(at), Some(b'?' | b'#')) => normalized(&path[..at]),
        Some(_) => {
            let end = path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
            Cow::Owned(readings::resolved(&Decoding::LITERAL.write(&path[..end])))
        }
    }
}

/// Returns the first position at which a path differs from its normal form or ends early.
fn first_odd(path: &[u8]) -> Option<usize> {
    if path.first() != Some(&b'/') {
        return Some(0);
    }
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        if UNESCAPED[usize::from(byte)] {
            at += 1;
            continue;
        }
        at = match byte {
            b'/' => {
                // Up to three bytes distinguish `//`, `/.` and `/..` from names; a query also ends a path.
                let end = |byte: Option<&u8>| matches!(byte, None | Some(b'/' | b'?' | b'#'));
                let next = |ahead: usize| path.get(at + ahead);
                let odd = match next(1) {
                    None | Some(b'?' | b'#') => at > 0,
                    Some(b'/') => true,
                    Some(b'.') => end(next(2)) || (next(2) == Some(&b'.') && end(next(3))),
                    Some(_) => false,
                };
                if odd {
                    return Some(at);
                }
                at + 1
            }
            b'%' => match escape(&path[at..]) {
                Some(it)
                    if !is_plain_in_segment(it)
                        && !path[at + 1..at + 3].iter().any(u8::is_ascii_lowercase) =>
                {
                    at + 3
                }
                _ => return Some(at),
            },
            _ => return Some(at),
        };
    }
    None
}

/// Bytes that are never escaped in the normal form.
static UNESCAPED: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "below 256")]
        let it = byte as u8;
        plain[byte] = it.is_ascii_graphic() && !matches!(it, b'/' | b'%' | b'?' | b'#');
        byte += 1;
    }
    plain
};

/// Returns the path with normalized characters and unchanged segments, including `.` and `..`,
/// for servers that do not resolve them. `None` for a path that does not begin with a
/// slash.
pub fn literal(path: &str) -> Option<String> {
    let end = path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    path.starts_with('/').then(|| Decoding::LITERAL.write(&path[..end]))
}

/// Returns the segments of a normal path; nothing for `/`.
pub(crate) fn segments(normal: &str) -> impl Iterator<Item = &str> {
    let rest = normal.strip_prefix('/').unwrap_or(normal);
    let empty = rest.is_empty();
    rest.split('/').filter(move |_| !empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_byte_or_pair_is_found_at_every_position_of_a_path() {
        for length in 1..70_usize {
            let plain = format!("/{}", "a".repeat(length));
            assert!(is_plain(plain.as_bytes()), "{plain}");
            for at in 1..=length {
                for odd in (0..=u8::MAX).filter(|byte| !byte.is_ascii_alphanumeric()) {
                    let mut path = plain.clone().into_bytes();
                    path[at] = odd;
                    let is_plain_byte = odd.is_ascii_graphic() && !b"%#\\;?".contains(&odd);
                    // A slash or a dot is plain between letters.
                    let is_edge = matches!(odd, b'/' | b'.') && (at == length || at == 1);
                    assert_eq!(is_plain(&path), is_plain_byte && !is_edge, "{odd:?} at {at} of {length}");
                }
                for pair in ["//", "/.", "./"] {
                    let mut path = plain.clone();
                    path.replace_range(at..at, pair);
                    assert!(!is_plain(path.as_bytes()), "{path}");
                }
            }
        }
        assert!(is_plain(b"/") && is_plain(b"/a..b/c-d/e") && !is_plain(b"") && !is_plain(b"a"));
    }

    #[test]
    fn spellings_of_one_path_become_one() {
        for (written, becomes) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("login", "/login"),
            ("*", "/*"),
            ("/login/", "/login"),
            ("/login//", "/login"),
            ("//login", "/login"),
            ("/./login", "/login"),
            ("/x/../login", "/login"),
            ("/../../login", "/login"),
            ("/login/.", "/login"),
            ("/login/x/..", "/login"),
            ("/%6c%6Fgin", "/login"),
            ("/%2e%2e/login", "/login"),
            ("/x/%2E%2E/login", "/login"),
            ("/login?x=/../y", "/login"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%zz%4", "/a%25zz%254"),
            ("/%4%31", "/%2541"),
            ("/%2561", "/%2561"),
            ("/café", "/caf%C3%A9"),
            ("/a b\u{7f}", "/a%20b%7F"),
            ("/.hidden", "/.hidden"),
            ("/...", "/..."),
            ("/..a", "/..a"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/Login", "/Login"),
        ] {
            assert_eq!(normal(written), becomes, "{written}");
            assert!(matches!(normal(becomes), Cow::Borrowed(_)), "{becomes} is normal");
        }
    }
}
