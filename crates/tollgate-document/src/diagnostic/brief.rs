//! Renders a diagnostic in one line, for readers who may not see the file.
//!
//! The readiness of a server is public and its log is read by many, and a
//! policy may contain API keys: under `allow`, as names of `overrides`, or anywhere
//! by mistake. So no line of the file is shown, and quotes from the file
//! are shortened like keys (`privacy`), unless the quote is a
//! word of the format, or a misspelling of the word of the format that the
//! message itself suggests: `` `minuet` is not a unit of time (did you mean `minute`?) ``.

use std::collections::HashSet;

use super::{Diagnostic, Severity, Sources, excerpt, store};
use crate::suggest::nearest;

/// The number of characters of a quoted value that are shown.
const SHOWN_CHARS: usize = 4;

/// Distinguishes words of the format from possible secrets.
pub(super) struct Brief<'w> {
    /// All texts in lower case, because messages may change the case.
    written: String,
    words: &'w HashSet<String>,
}

impl<'w> Brief<'w> {
    pub(super) fn new(sources: &Sources, words: &'w HashSet<String>) -> Self {
        Self { written: sources.texts().map(str::to_lowercase).collect::<Vec<_>>().join("\n"), words }
    }

    /// Appends `FILE:LINE:COLUMN: message (label; help)` and a line break.
    pub(super) fn render(&self, it: &Diagnostic, sources: &Sources, file: &str, out: &mut String) {
        let suggested = self.suggested(it);
        let said =
            |text: &str| excerpt::printable(&self.redacted(&store::said(it, sources, text), &suggested));
        out.push_str(&excerpt::whereabouts(it.place, sources, file));
        let kind = if it.severity == Severity::Warning { it.kind() } else { String::new() };
        out.extend([if kind.is_empty() { "" } else { ": " }, &kind, ": "]);
        out.push_str(&said(&it.message));
        let more = std::iter::once(&it.label).chain(&it.help).filter(|it| !it.is_empty());
        let more: Vec<_> = more.map(|it| said(it)).collect();
        if !more.is_empty() {
            out.extend([" (", &more.join("; "), ")"]);
        }
        out.push('\n');
    }

    /// Returns the words of the format that a diagnostic suggests.
    fn suggested<'d>(&self, it: &'d Diagnostic) -> Vec<&'d str> {
        let hints =
            std::iter::once(&it.label).chain(&it.help).filter_map(|text| text.split_once("did you mean"));
        let quoted = hints.flat_map(|(_, rest)| rest.split('`').skip(1).step_by(2));
        quoted.flat_map(pieces).filter(|piece| self.words.contains(*piece)).collect()
    }

    /// Returns the text without the values between backticks.
    fn redacted(&self, text: &str, suggested: &[&str]) -> String {
        let pieces: Vec<_> = text.split('`').collect();
        // An odd number of backticks means that a value contains one, so the quotes cannot be matched.
        let all = pieces.len().is_multiple_of(2);
        let redact = |(at, piece): (usize, &&str)| {
            if all || at % 2 == 1 { self.redacted_value(piece, suggested) } else { (*piece).to_owned() }
        };
        pieces.iter().enumerate().map(redact).collect::<Vec<_>>().join("`")
    }

    fn redacted_value(&self, text: &str, suggested: &[&str]) -> String {
        let ends = |char: char| char.is_whitespace() || ":,{}[]\"'".contains(char);
        let mut out = String::new();
        for piece in text.split_inclusive(ends) {
            let word = piece.trim_end_matches(ends);
            let cut = match word.char_indices().nth(SHOWN_CHARS) {
                Some((at, _)) if self.may_be_secret(word, suggested) => Some(at),
                _ => None,
            };
            match cut {
                Some(at) => out.extend([&word[..at], "…", &piece[word.len()..]]),
                None => out.push_str(piece),
            }
        }
        out
    }

    fn may_be_secret(&self, word: &str, suggested: &[&str]) -> bool {
        // Long values are shortened before, and endpoints have the slash that they lack.
        let word = word.strip_suffix("...").unwrap_or(word).trim_start_matches('/');
        !self.is_of_format(word)
            && nearest(word, suggested.iter().copied()).is_none()
            && self.written.contains(&word.to_lowercase())
    }

    /// Whether a text is a word of the format, or several with numbers between them: `10/minute`.
    fn is_of_format(&self, text: &str) -> bool {
        if self.words.contains(text) {
            return true;
        }
        let is_number = |piece: &str| {
            piece.len() <= MAX_DIGITS && piece.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
        };
        let is_word =
            |piece: &str| self.words.contains(piece.trim_start_matches(|it: char| it.is_ascii_digit()));
        pieces(text).any(is_word) && pieces(text).all(|piece| is_word(piece) || is_number(piece))
    }
}

/// The maximum number of digits of a shown number. A longer number may be an account number.
const MAX_DIGITS: usize = 9;

/// Returns the words and numbers of a value.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_alphanumeric() && !"-_".contains(char)).filter(|piece| !piece.is_empty())
}
