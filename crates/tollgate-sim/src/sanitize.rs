//! Text from outside (keys, paths, names of files), made fit to be shown.
//!
//! It can hold anything: markup, what turns the direction of writing, what moves a cursor, megabytes. Whoever shows it cuts it and
//! writes what cannot be seen as an escape ([`shown`]); markup is a second step, for what becomes markup ([`markup`]).

/// At most `most` characters of it, with a `…` where it was cut, and all that is not printable as an escape.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut room = most;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let before = out.len();
        match char {
            '"' | '\'' | '\\' => out.push(char),
            _ => out.extend(char.escape_debug()),
        }
        let length = out[before..].chars().count();
        if length > room || (length == room && !chars.as_str().is_empty()) {
            out.truncate(before);
            out.push('…');
            return out;
        }
        room -= length;
    }
    out
}

/// Escaped for the text of an element and for an attribute in quotes, in HTML and in XML. What XML has no way to write is left out.
pub(crate) fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(char),
            '\0'..='\x1f' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {}
            _ => out.push(char),
        }
    }
    out
}

/// Columns that a text takes in a terminal, rather too many than too few.
pub(crate) fn columns(text: &str) -> usize {
    text.chars()
        .map(|char| if char < '\u{1100}' || ('\u{2000}'..'\u{2e80}').contains(&char) { 1 } else { 2 })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelt_out_and_what_is_long_is_cut() {
        assert_eq!(shown("a\u{202e}b\u{1b}[31m\n\"'\\é", 80), "a\\u{202e}b\\u{1b}[31m\\n\"'\\é");
        assert_eq!(shown("abcdef", 6), "abcdef");
        assert_eq!(shown("abcdefg", 6), "abcde…");
        assert_eq!(shown("\u{202e}\u{202e}", 9), "\\u{202e}…", "an escape is not cut in the middle");
        assert_eq!(shown(&"x".repeat(10_000), 40).chars().count(), 40);
        assert_eq!((shown("", 0), shown("a", 0)), (String::new(), "…".to_owned()));
    }

    #[test]
    fn no_markup_gets_through() {
        assert_eq!(markup("<b a='\"'>&amp;\0\u{85}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;amp;");
    }
}
