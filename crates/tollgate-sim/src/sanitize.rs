//! Makes text from outside (keys, paths, file names) safe to display.
//!
//! Such text may contain markup, bidirectional controls, terminal escapes, or megabytes. [`shown`] truncates it and
//! escapes characters that are not printable; [`markup`] escapes it for HTML and XML as a second step.

use tollgate_document::sanitize::show;

/// Returns at most `most` characters, with a `…` where the text was cut, and with unprintable characters as escapes.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut room = most;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let before = out.len();
        // Writing to a string does not fail.
        let _never = show(char, &mut out);
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

/// Escapes text for an element or a quoted attribute, in HTML and XML. Characters that XML cannot represent are
/// dropped.
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

/// Returns the columns that a text takes in a terminal; an upper bound.
pub(crate) fn columns(text: &str) -> usize {
    text.chars()
        .map(|char| if char < '\u{1100}' || ('\u{2000}'..'\u{2e80}').contains(&char) { 1 } else { 2 })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped_and_long_text_is_truncated() {
        assert_eq!(shown("a\u{202e}b\u{1b}[31m\n\"'\\é", 80), "a\\u{202e}b\\u{1b}[31m\\n\"'\\é");
        assert_eq!(shown("abcdef", 6), "abcdef");
        assert_eq!(shown("abcdefg", 6), "abcde…");
        assert_eq!(shown("\u{202e}\u{202e}", 9), "\\u{202e}…", "an escape is not cut in the middle");
        assert_eq!(shown(&"x".repeat(10_000), 40).chars().count(), 40);
        assert_eq!((shown("", 0), shown("a", 0)), (String::new(), "…".to_owned()));
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(markup("<b a='\"'>&amp;\0\u{85}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;amp;");
    }
}
