//! Makes text from outside safe to show on a terminal, in a log or in a message.
//!
//! Keys, paths, names and file contents come from callers. They may contain line breaks, colors, cursor
//! movements, bidirectional controls and characters without a width. All of Tollgate decides with
//! [`is_unprintable`] which characters are shown as escapes or dropped.
//!
//! Escaping for a syntax (HTML, XML, JSON, labels of metrics) is a separate step, where that syntax is
//! written.

use std::fmt::{self, Write};

/// Whether a character cannot be shown as it is: a control character, a line or paragraph separator, a
/// bidirectional or other format character, a blank other than U+0020, or an unassigned or private one.
///
/// ```
/// use tollgate_document::sanitize::is_unprintable;
///
/// assert!(['\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}'].into_iter().all(is_unprintable));
/// assert!(!['a', ' ', '"', '\\', 'é', '京', '\u{301}'].into_iter().any(is_unprintable));
/// ```
pub fn is_unprintable(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_control();
    }
    // The tables of the standard library are private to `escape_debug`. After another character, it
    // leaves combining marks as they are.
    let mut buffer = [b'a'; 5];
    let length = char.encode_utf8(&mut buffer[1..]).len();
    str::from_utf8(&buffer[..=length]).is_ok_and(|text| text.escape_debug().nth(2).is_some())
}

/// A text with its unprintable characters as escapes: `\n`, `\u{202e}`. Quotes and backslashes stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Printable<'t>(pub &'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| show(char, f))
    }
}

/// Writes one character, as an escape if it is unprintable.
pub fn show(char: char, out: &mut impl Write) -> fmt::Result {
    if is_unprintable(char) { write!(out, "{}", char.escape_debug()) } else { out.write_char(char) }
}

/// Returns a text with its unprintable characters as escapes. See [`Printable`].
///
/// ```
/// use tollgate_document::sanitize::printable;
///
/// assert_eq!(printable("a\u{1b}[2J\r\n\u{202e}b"), r"a\u{1b}[2J\r\n\u{202e}b");
/// assert_eq!(printable("\"Jürgen\" 東京"), "\"Jürgen\" 東京");
/// ```
pub fn printable(text: &str) -> String {
    Printable(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escaped_text_moves_a_cursor_ends_a_line_or_changes_the_direction() {
        let formats = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'].into_iter();
        let formats = formats.chain('\u{200b}'..='\u{200f}').chain('\u{2028}'..='\u{202e}');
        let formats = formats.chain('\u{2060}'..='\u{206f}').chain('\u{fff9}'..='\u{fffb}');
        let formats = formats.chain('\u{e0001}'..='\u{e007f}');
        for char in ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}').chain(formats) {
            assert!(is_unprintable(char), "{char:?}");
            let shown = Printable(&format!("a{char}b")).to_string();
            assert!(shown.starts_with("a\\") && shown.chars().all(|it| it.is_ascii_graphic()), "{shown}");
            assert_eq!(printable(&shown), shown, "an escape is printable");
        }
    }

    #[test]
    fn letters_of_every_script_stay() {
        for text in ["Jürgen", "東京", "ภาษาไทย", "हिन्दी", "e\u{301}", "עברית", "a \"b\" 'c' \\d", "😀"]
        {
            assert_eq!(printable(text), text);
        }
    }
}
