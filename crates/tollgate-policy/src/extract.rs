//! Gets one value out of a query, a cookie header or an authorization header.
//!
//! The first value of a name that is not empty counts. Values are percent-decoded,
//! so that spelling one value in two ways does not make two keys. All of it is
//! linear in its input and borrows where nothing had to be decoded.

use std::borrow::Cow;

use crate::path::escape;

/// The first parameter called `name` in `a=1&b=2`.
pub(crate) fn query<'q>(query: &'q str, name: &str) -> Option<Cow<'q, [u8]>> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let same = key == name
            || (needs_decoding(key.as_bytes(), true) && *decoded(key.as_bytes(), true) == *name.as_bytes());
        same.then(|| decoded(value.as_bytes(), true)).filter(|value| !value.is_empty())
    })
}

/// The first cookie called `name` in `a=1; b="2"`.
pub(crate) fn cookie<'h>(header: &'h [u8], name: &str) -> Option<Cow<'h, [u8]>> {
    header.split(|&byte| byte == b';').find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (key, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let bare = value.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(value);
        (key == name.as_bytes()).then(|| decoded(bare, false)).filter(|value| !value.is_empty())
    })
}

/// The token of `Bearer token`.
pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let header = header.trim_ascii();
    let (scheme, token) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn needs_decoding(text: &[u8], plus_is_blank: bool) -> bool {
    text.iter().any(|&byte| byte == b'%' || (plus_is_blank && byte == b'+'))
}

/// Percent-decoded; what is no escape stays as it is.
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

    #[test]
    fn the_first_value_counts_in_one_spelling() {
        assert_eq!(query("a=1&key=x%2By&key=2", "key").as_deref(), Some(&b"x+y"[..]));
        assert_eq!(query("k%65y=a+b", "key").as_deref(), Some(&b"a b"[..]));
        assert_eq!(query("key", "key"), None);
        assert_eq!(query("key=&key=x", "key").as_deref(), Some(&b"x"[..]), "an empty value is none");
        assert_eq!(query("keys=1", "key"), None);
        assert_eq!(cookie(b"a=1; sid=\"x%41\"; sid=2", "sid").as_deref(), Some(&b"xA"[..]));
        assert_eq!(cookie(b"SID=1;;=;sid", "sid"), None);
        assert_eq!(bearer(b" bEaReR  tok "), Some(&b"tok"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"bearer"), None);
    }
}
