//! Extracts the values of a name from a query, from cookies and from an authorization header.
//!
//! Every value is found, in every reading that servers are known to use:
//!
//! - `;` separates parameters in some servers and is part of a value in others.
//! - A blank or a comma ends a cookie in some servers, and quotes may or may not
//!   protect a `;`.
//! - In quotes, some servers read `\141` as `a` (Python), others read `%u0061` as `a` (ASP.NET). A
//!   NUL may end a value.
//! - Names match in any case (ASP.NET), without surrounding blanks and with `.`,
//!   ` ` and `[` for `_` (PHP), and `name[]` is a list called `name` (PHP, Rack, Express).
//!
//! Values are percent-decoded, so that two spellings of one value are one key.
//! All functions are linear in their input and borrow if no decoding is needed.

use std::borrow::Cow;

use crate::lookup::{Collector, Readers, without_wide_blanks};
use crate::path::escape;

/// Adds every parameter called `name` in `a=1&b=2`.
pub(crate) fn query<'q>(query: &'q str, name: &str, out: &mut impl Collector<'q>) {
    // `new URLSearchParams(query)` takes off a `?` that is part of the first name to others.
    if query.starts_with('?') {
        let bare = query.trim_start_matches('?').as_bytes();
        let first = bare.split(|byte| matches!(byte, b'&' | b';')).next().unwrap_or_default();
        parameter(first, name, Readers::Some, out);
    }
    for pair in query.as_bytes().split(|&byte| byte == b'&') {
        parameter(pair, name, Readers::All, out);
        if pair.contains(&b';') {
            let pieces = pair.split(|&byte| byte == b';');
            pieces.for_each(|piece| parameter(piece, name, Readers::Some, out));
        }
    }
}

fn parameter<'q>(pair: &'q [u8], name: &str, readers: Readers, out: &mut impl Collector<'q>) {
    let (key, value) = halves(pair).unwrap_or((pair, b""));
    if let Some(named) = name_readers(key, name, true) {
        add_decoded(value, true, narrower(readers, named), out);
    }
}

/// Adds a decoded value, as ambiguous if servers decode it differently.
fn add_decoded<'t>(text: &'t [u8], plus_is_blank: bool, readers: Readers, out: &mut impl Collector<'t>) {
    let value = decoded(text, plus_is_blank);
    // Only decoded values can contain either.
    let is_odd = matches!(value, Cow::Owned(_))
        && (value.contains(&0) || text.windows(2).any(|pair| pair.eq_ignore_ascii_case(b"%u")));
    out.add(value, if is_odd { Readers::Some } else { readers });
}

/// Adds every cookie called `name` in `a=1; b="2"`.
///
/// The lines of a request are one list to servers, which join them: `in_quotes` is whether the
/// lines before have left a quote open.
pub(crate) fn cookie<'h>(line: &'h [u8], name: &str, in_quotes: &mut bool, out: &mut impl Collector<'h>) {
    for pair in line.split(|&byte| byte == b';') {
        let pair = pair.trim_ascii();
        // Most pairs contain none of these, so the fast check comes first.
        let is_plain = !pair.iter().any(|byte| matches!(byte, b'"' | b' ' | b'\t' | b','));
        if is_plain && !*in_quotes {
            cookie_pair(pair, name, Readers::All, out);
            continue;
        }
        let opens_or_closes = pair.iter().fold(false, |odd, &byte| odd ^ (byte == b'"'));
        let readers = if *in_quotes || opens_or_closes { Readers::Some } else { Readers::All };
        *in_quotes ^= opens_or_closes;
        cookie_pair(pair, name, readers, out);
        if !halves(pair).is_some_and(|(_, value)| is_quoted(value.trim_ascii())) {
            let pieces = pair.split(|byte| matches!(byte, b' ' | b'\t' | b','));
            pieces.for_each(|piece| cookie_pair(piece, name, Readers::Some, out));
        }
    }
}

fn cookie_pair<'h>(pair: &'h [u8], name: &str, readers: Readers, out: &mut impl Collector<'h>) {
    // A name without a value is an empty cookie to some servers, and no cookie to others.
    let ((key, value), readers) = halves(pair).map_or(((pair, &b""[..]), Readers::Some), |it| (it, readers));
    let (key, value) = (key.trim_ascii(), value.trim_ascii());
    if let Some(named) = name_readers(key, name, false) {
        cookie_value(value, narrower(readers, named), out);
        if let Some(bare) = without_wide_blanks(value) {
            cookie_value(bare, Readers::Some, out);
        }
    }
}

fn cookie_value<'h>(value: &'h [u8], readers: Readers, out: &mut impl Collector<'h>) {
    match value {
        _ if is_quoted(value) => add_decoded(&value[1..value.len() - 1], false, readers, out),
        [b'"', inner @ .., b'"'] => {
            out.add(unslashed(inner), Readers::Some);
            add_decoded(value, false, Readers::Some, out);
        }
        _ => add_decoded(value, false, readers, out),
    }
}

/// A quoted string without its backslashes: `\"` is `"`, and `\141` is `a`.
fn unslashed(text: &[u8]) -> Cow<'static, [u8]> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                out.push(*byte);
                after
            }
            [] => return Cow::Owned(out),
        }
    }
}

/// Whether a value is one quoted string with the same meaning to every server.
fn is_quoted(value: &[u8]) -> bool {
    matches!(value, [b'"', inner @ .., b'"'] if !inner.iter().any(|byte| matches!(byte, b'"' | b'\\')))
}

/// Adds the token of `Bearer token`. Another scheme is an empty value: a server that finds it
/// finds no token.
///
/// Servers differ in where a token ends that holds blanks or separators, and some look for
/// `Bearer` anywhere in a line: every piece behind it is added then.
pub(crate) fn authorization<'h>(line: &'h [u8], out: &mut impl Collector<'h>) {
    match bearer(line) {
        Some(token) if token.iter().all(|byte| is_in_token(*byte)) => {
            return out.add(Cow::Borrowed(token), Readers::All);
        }
        Some(token) => out.add(Cow::Borrowed(token), Readers::Some),
        None => out.add(Cow::Borrowed(b""), Readers::All),
    }
    let ends_in_scheme = |piece: &[u8]| {
        piece.len().checked_sub(6).is_some_and(|at| piece[at..].eq_ignore_ascii_case(b"bearer"))
    };
    line.split(|byte| !is_in_token(*byte))
        .filter(|piece| !piece.is_empty())
        .skip_while(|piece| !ends_in_scheme(piece))
        .skip(1)
        .for_each(|piece| out.add(Cow::Borrowed(piece), Readers::Some));
}

/// Whether a byte is part of a token to every server: those of RFC 6750, 2.1, and two that
/// separate the id of a token from its secret.
const fn is_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'|' | b':')
}

/// Returns the token of `Bearer token`.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.trim_ascii().split_at_checked(6)?;
    let follows = token.first().is_some_and(u8::is_ascii_whitespace);
    (follows && scheme.eq_ignore_ascii_case(b"bearer")).then(|| token.trim_ascii())
}

/// Splits a pair at the first `=`.
fn halves(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|&byte| byte == b'=')?;
    Some((&pair[..at], &pair[at + 1..]))
}

fn narrower(one: Readers, other: Readers) -> Readers {
    if one == Readers::All { other } else { one }
}

/// Returns the servers that treat a written name as `name`; `None` if no server does.
fn name_readers(written: &[u8], name: &str, plus_is_blank: bool) -> Option<Readers> {
    let name = name.as_bytes();
    if written == name {
        return Some(Readers::All);
    }
    let is_simple = written.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_simple && written.len() != name.len() {
        return None;
    }
    let written = decoded(written, plus_is_blank);
    if *written == *name {
        return Some(Readers::All);
    }
    let trimmed = written.trim_ascii();
    let trimmed = without_wide_blanks(trimmed).unwrap_or(trimmed);
    let without_index = trimmed.iter().position(|&byte| byte == b'[').map_or(trimmed, |at| &trimmed[..at]);
    (is_same_variable(trimmed, name) || is_same_variable(without_index, name)).then_some(Readers::Some)
}

/// Whether two names are equal in any case, with `_` for characters that PHP replaces.
fn is_same_variable(one: &[u8], other: &[u8]) -> bool {
    let folded = |byte: &u8| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    one.len() == other.len() && one.iter().map(folded).eq(other.iter().map(folded))
}

fn needs_decoding(text: &[u8], plus_is_blank: bool) -> bool {
    text.iter().any(|&byte| byte == b'%' || (plus_is_blank && byte == b'+'))
}

/// Percent-decodes a text; invalid escapes are kept.
pub(crate) fn decoded(text: &[u8], plus_is_blank: bool) -> Cow<'_, [u8]> {
    if !needs_decoding(text, plus_is_blank) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let plain = if byte == b'+' && plus_is_blank { b' ' } else { byte };
        let (byte, width) = escape(&text[at..]).map_or((plain, 1), |decoded| (decoded, 3));
        out.push(byte);
        at += width;
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::{Lookup, SingleValue};

    /// Formats a lookup; `Some("")` stands for several different values.
    fn shown(single: SingleValue<'_>) -> Option<String> {
        match single.finish() {
            Lookup::Missing => None,
            Lookup::Value(value) => Some(String::from_utf8_lossy(&value).into_owned()),
            Lookup::Ambiguous => Some(String::new()),
        }
    }

    #[track_caller]
    fn check_query(written: &str, name: &str, expected: Option<&str>) {
        let mut single = SingleValue::default();
        query(written, name, &mut single);
        assert_eq!(shown(single).as_deref(), expected, "{written}");
    }

    #[track_caller]
    fn check_cookie(written: &str, expected: Option<&str>) {
        let mut single = SingleValue::default();
        cookie(written.as_bytes(), "sid", &mut false, &mut single);
        assert_eq!(shown(single).as_deref(), expected, "{written}");
    }

    #[test]
    fn one_parameter_is_found_in_one_spelling() {
        check_query("a=1&key=x%2By&b=2", "key", Some("x+y"));
        check_query("k%65y=a+b&key=a%20b", "key", Some("a b"));
        check_query("key&keys=1&ke=2", "key", None);
        check_query("filter=a;b&key=x", "key", Some("x"));
        check_query("", "key", None);
    }

    #[test]
    fn two_values_of_a_parameter_are_ambiguous_however_they_are_written() {
        for written in [
            "key=a&key=b",
            "key=a&k%65y=b",
            "key=&key=a",
            "key&key=a",
            "key=a;key=b",
            "key=a;b",
            "x=1;key=a",
            "key=a&x=1;key=b",
            "KEY=a",
            "key=a&Key=b",
            "key=a&+key=b",
            "key=a&key%20=b",
            "key=a&key[]=b",
            "key[0]=a",
            "key=%u0061",
            "key=a%00b",
        ] {
            check_query(written, "key", Some(""));
        }
        check_query("user_id=a&user.id=b", "user_id", Some(""));
        check_query("user_id=a&user%20id=b", "user_id", Some(""));
        check_query("user_id=a&user[id=b", "user_id", Some(""));
        check_query("user_id=a&userid=b", "user_id", Some("a"));
    }

    #[test]
    fn one_cookie_is_found_in_one_spelling() {
        check_cookie("a=1; sid=\"x%41\"; b=2", Some("xA"));
        check_cookie("sid=x; sid=\"x\";sid=x", Some("x"));
        check_cookie("a=b c, d; sid=x", Some("x"));
        check_cookie("sid=\"a b\"", Some("a b"));
        check_cookie("a=\"1; 2\"; sid=x", Some("x"));
        check_cookie("sid", None);
        check_cookie(";;=;sid=", None);
    }

    #[test]
    fn two_values_of_a_cookie_are_ambiguous_however_they_are_written() {
        for written in [
            "sid=x; sid=y",
            "sid=; sid=x",
            "sid; sid=x",
            "sid=x sid=y",
            "sid=x,sid=y",
            "sid=x y",
            "a=1 sid=x",
            "a=1\tsid=x",
            "a=1, sid=x",
            "a=\"; sid=x; b=\"",
            "sid=\"x; sid=y\"",
            "sid = x",
            "sid=\"\\170\"",
            "sid=\"\\x\"",
            "sid=\"a\\\"b\"",
            "sid=x%00y",
            "SID=x",
            "sid=x; Sid=y",
            "s%69d=y; SID=x",
        ] {
            check_cookie(written, Some(""));
        }
    }

    #[test]
    fn backslashes_are_undone_as_python_does() {
        for (written, value) in
            [("\\141nn", "ann"), ("\\a\\\"", "a\""), ("a\\", "a\\"), ("\\400", "400"), ("", "")]
        {
            assert_eq!(*unslashed(written.as_bytes()), *value.as_bytes(), "{written}");
        }
    }

    #[test]
    fn a_bearer_token_follows_its_scheme() {
        assert_eq!(bearer(b" bEaReR  tok "), Some(&b"tok"[..]));
        assert_eq!(bearer(b"Bearer\ttok"), Some(&b"tok"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"bearer"), None);
        assert_eq!(bearer(b"bearertok x"), None);
    }
}
