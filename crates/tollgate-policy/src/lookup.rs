//! The lookup of a property in a request, and its ambiguity.
//!
//! A request can give several values for one property: two `X-API-Key` lines,
//! `?user=a&user=b`, two cookies of one name. Servers differ in which of them
//! they use. A caller that makes Tollgate and the service use different
//! values has a new identity for each request. Several different values are
//! therefore `Ambiguous`, which differs from `Missing`: an ambiguous property is not
//! looked up in another place.
//!
//! Spellings that only some servers understand (`;` between query parameters, a
//! parameter name in another case) never identify a caller. They make the property
//! ambiguous, because other servers find a different value, or none.
//!
//! An empty value beside another one is a different value: a server that uses
//! the empty one serves an anonymous caller.

use std::borrow::Cow;

/// The result of looking up a property of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'r> {
    /// The request has no value, or an empty one.
    Missing,
    /// Every server that reads this request finds this value.
    Value(Cow<'r, [u8]>),
    /// The request has several different values.
    Ambiguous,
}

/// The servers that find a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// All servers.
    All,
    /// The value is found by some servers; others find another value or no value.
    Some,
}

/// Receives every value that a request gives for a property.
pub(crate) trait Collector<'r> {
    /// Adds a value.
    fn add(&mut self, value: Cow<'r, [u8]>, readers: Readers);

    /// Adds a header line, which is one value to some servers and a list to others (RFC 9110, 5.3).
    fn add_line(&mut self, line: &'r [u8]) {
        self.add_trimmed(line);
    }

    /// Adds a header line, and also without the blanks that only some servers remove.
    fn add_trimmed(&mut self, line: &'r [u8]) {
        let line = line.trim_ascii();
        self.add(Cow::Borrowed(line), Readers::All);
        if let Some(bare) = without_wide_blanks(line) {
            self.add(Cow::Borrowed(bare), Readers::Some);
        }
    }
}

/// A text without blanks around it that are not ASCII: `None` where there are none. Servers that
/// take a header for Latin-1 or for UTF-8 remove them with all others.
pub(crate) fn without_wide_blanks(text: &[u8]) -> Option<&[u8]> {
    if text.first().is_none_or(u8::is_ascii) && text.last().is_none_or(u8::is_ascii) {
        return None;
    }
    // A letter of UTF-8 may end in a byte that is a blank in Latin-1.
    let bare = if let Ok(text) = std::str::from_utf8(text) {
        text.trim_matches(|it: char| it.is_whitespace() || it == '\u{FEFF}').as_bytes()
    } else {
        let is_blank = |byte: &u8| matches!(byte, 0xA0 | 0x85 | 0xC2) || byte.is_ascii_whitespace();
        let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
        let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(start, |at| at + 1);
        &text[start..end]
    };
    (bare.len() < text.len()).then_some(bare)
}

/// Collects the single value of a property.
#[derive(Debug, Default)]
pub(crate) struct SingleValue<'r> {
    first: Option<Cow<'r, [u8]>>,
    differs: bool,
    found_by_all: bool,
}

impl<'r> SingleValue<'r> {
    pub(crate) fn finish(self) -> Lookup<'r> {
        match self.first {
            _ if self.differs => Lookup::Ambiguous,
            None => Lookup::Missing,
            Some(value) if value.is_empty() => Lookup::Missing,
            Some(_) if !self.found_by_all => Lookup::Ambiguous,
            Some(value) => Lookup::Value(value),
        }
    }
}

impl<'r> Collector<'r> for SingleValue<'r> {
    #[inline]
    fn add(&mut self, value: Cow<'r, [u8]>, readers: Readers) {
        self.found_by_all |= readers == Readers::All;
        match &self.first {
            None => self.first = Some(value),
            Some(first) => self.differs |= *first != value,
        }
    }
}

/// Passes every non-empty value to a function, and every member of a list.
pub(crate) struct EveryValue<F>(pub(crate) F);

impl<'r, F: FnMut(&[u8])> Collector<'r> for EveryValue<F> {
    fn add(&mut self, value: Cow<'r, [u8]>, _: Readers) {
        if !value.is_empty() {
            (self.0)(&value);
        }
    }

    fn add_line(&mut self, line: &'r [u8]) {
        self.add_trimmed(line);
        members(line).for_each(|member| self.add_trimmed(member));
    }
}

/// Returns the members of a comma-separated header line; nothing for a line with one value.
pub(crate) fn members(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_list = line.contains(&b',');
    line.split(|&byte| byte == b',').filter(move |_| is_list).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[(&'static str, Readers)], expected: &Lookup<'_>) {
        let mut single = SingleValue::default();
        for (value, readers) in values {
            single.add(Cow::Borrowed(value.as_bytes()), *readers);
        }
        assert_eq!(single.finish(), *expected, "{values:?}");
    }

    #[test]
    fn a_value_is_certain_if_every_server_finds_the_same() {
        use Readers::{All, Some};
        let value = Lookup::Value(Cow::Borrowed(b"a"));
        check(&[], &Lookup::Missing);
        check(&[("", All), ("", Some)], &Lookup::Missing);
        check(&[("a", All)], &value);
        check(&[("a", All), ("a", All), ("a", Some)], &value);
        check(&[("a", Some)], &Lookup::Ambiguous);
        check(&[("a", All), ("b", Some)], &Lookup::Ambiguous);
        check(&[("a", All), ("a", All), ("b", All)], &Lookup::Ambiguous);
        check(&[("", All), ("a", All)], &Lookup::Ambiguous);
        check(&[("a", All), ("", All)], &Lookup::Ambiguous);
    }

    #[test]
    fn a_line_is_visited_as_a_whole_and_by_its_members() {
        let mut seen = Vec::new();
        let mut every = EveryValue(|value: &[u8]| seen.push(String::from_utf8_lossy(value).into_owned()));
        every.add_line(b" a ");
        every.add_line(b"b, ,c");
        assert_eq!(seen, ["a", "b, ,c", "b", "c"]);
    }
}
