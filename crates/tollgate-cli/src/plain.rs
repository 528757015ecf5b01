//! What a caller sent, made fit for a log that people read in a terminal.
//!
//! A key or a path can hold anything: the end of a line, colours, what moves a cursor
//! or turns the direction of writing. All of that is written as an escape, in the
//! JSON form too: its own rules leave most of it as it is.

use std::fmt::{self, Write};

use crate::configuration::LogFormat;

/// A text of a caller, shown with escapes.
pub(crate) struct Plain<'t> {
    text: &'t str,
    format: LogFormat,
}

impl<'t> Plain<'t> {
    /// For a log of this form.
    pub(crate) const fn new(text: &'t str, format: LogFormat) -> Self {
        Self { text, format }
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // JSON brings quotes of its own, and escapes those within.
        let is_quoted = self.format == LogFormat::Human;
        if is_quoted {
            f.write_char('"')?;
        }
        for char in self.text.chars() {
            match char {
                '"' | '\\' if is_quoted => write!(f, "\\{char}")?,
                '"' | '\'' | '\\' => f.write_char(char)?,
                // All that is not printable, whatever Unicode calls it.
                _ => write!(f, "{}", char.escape_debug())?,
            }
        }
        if is_quoted { f.write_char('"') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_a_line_or_a_terminal() {
        let hostile =
            "a\"\\'\n\r\t\u{1b}[31m\u{9b}31m\u{7f}\u{0}\u{2028}\u{2029}\u{202e}\u{2066}\u{200b}\u{feff}é";
        for format in [LogFormat::Human, LogFormat::Json] {
            let shown = Plain::new(hostile, format).to_string();
            assert!(shown.chars().all(|it| it == 'é' || it.is_ascii_graphic()), "{shown}");
        }
        assert_eq!(Plain::new("a \"b\"\n", LogFormat::Human).to_string(), r#""a \"b\"\n""#);
        assert_eq!(Plain::new("a \"b\"\n", LogFormat::Json).to_string(), r#"a "b"\n"#);
    }
}
