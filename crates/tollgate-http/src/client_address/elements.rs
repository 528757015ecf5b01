//! Splits a header value at a separator, from right to left.
//!
//! Trusted proxies append at the right end. Reading from the right ensures that text on the left,
//! such as an unclosed quote, cannot change how their part is parsed. In quoted mode, separators
//! inside quotes do not split, because a proxy may quote text that a client chose
//! (`for=192.0.2.1;host="x,for=6.6.6.6"`).

/// An iterator over the elements of a header value, last element first.
pub(super) struct Elements<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
    quotes: bool,
}

impl<'a> Elements<'a> {
    /// Splits at every separator; quotes have no meaning.
    pub(super) const fn unquoted(text: &'a [u8], separator: u8) -> Self {
        Self { rest: Some(text), separator, quotes: false }
    }

    /// Splits at separators outside quotes.
    pub(super) const fn quoted(text: &'a [u8], separator: u8) -> Self {
        Self { rest: Some(text), separator, quotes: true }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.rest.take()?;
        let mut quoted = false;
        for (at, &byte) in text.iter().enumerate().rev() {
            if byte == b'"' && self.quotes && !is_escaped(&text[..at]) {
                quoted = !quoted;
            } else if byte == self.separator && !quoted {
                self.rest = Some(&text[..at]);
                return Some(&text[at + 1..]);
            }
        }
        Some(text)
    }
}

/// Whether the byte that follows `before` is escaped by a backslash that is not itself escaped.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let parts: Vec<_> = Elements::quoted(text.as_bytes(), b',').map(String::from_utf8_lossy).collect();
        assert_eq!(parts, expected, "{text}");
    }

    #[test]
    fn separators_in_quotes_do_not_count() {
        check("a,b", &["b", "a"]);
        check("", &[""]);
        check(",", &["", ""]);
        check(r#"a,"b,c",d"#, &["d", r#""b,c""#, "a"]);
        check(r#"a,h="x\",y""#, &[r#"h="x\",y""#, "a"]);
        check(r#"a,h="x\\",b"#, &["b", r#"h="x\\""#, "a"]);
    }

    #[test]
    fn an_open_quote_on_the_left_hides_nothing_on_the_right() {
        check(r#"",for=1.2.3.4"#, &["for=1.2.3.4", "\""]);
        check(r#"a,"b,c"#, &["c", r#"a,"b"#]);
    }
}
