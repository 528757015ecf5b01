//! Escapes text from callers for the log.
//!
//! Unprintable characters are escaped by `tollgate_document::sanitize`, also in JSON, whose own rules leave
//! most of them unescaped. Text is quoted for people here.

use std::fmt::{self, Write};

use tollgate_document::sanitize::show;

use crate::configuration::LogFormat;

/// A text from a caller, displayed with escapes.
pub(crate) struct Plain<'t> {
    text: &'t str,
    format: LogFormat,
}

impl<'t> Plain<'t> {
    /// Creates the text for a log of this format.
    pub(crate) const fn new(text: &'t str, format: LogFormat) -> Self {
        Self { text, format }
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // JSON adds and escapes quotes itself.
        let is_quoted = self.format == LogFormat::Human;
        if is_quoted {
            f.write_char('"')?;
        }
        for char in self.text.chars() {
            match char {
                '"' | '\\' if is_quoted => write!(f, "\\{char}")?,
                _ => show(char, f)?,
            }
        }
        if is_quoted { f.write_char('"') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
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
