//! Renders a diagnostic in one line, for readers who may not see the file.
//!
//! The readiness of a server is public and its log is read by many, and a
//! policy may contain API keys: under `allow`, as names of `overrides`, or anywhere
//! by mistake. So no line of the file is shown, and quotes from the file
//! are shortened like keys (`privacy`), unless the quote is a
//! word of the format, or a misspelling of the word of the format that the
//! message itself suggests: `` `minuet` is not a unit of time (did you mean `minute`?) ``.

use std::collections::HashSet;

use serde_json::Value;

use super::{Diagnostic, Severity, Sources, excerpt, store};
use crate::file_format::limit::METHODS;
use crate::file_format::rate;
use crate::lint::Lint;
use crate::suggest::nearest;

/// The number of characters of a quoted value that are shown.
const SHOWN_CHARS: usize = 4;

/// Words of Envoy's files, which are read with the same tools.
const ENVOY_WORDS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// Distinguishes words of the format from possible secrets.
pub(super) struct Brief {
    /// All texts in lower case, because messages may change the case.
    written: String,
    words: HashSet<String>,
}

impl Brief {
    pub(super) fn new(sources: &Sources) -> Self {
        let mut words: HashSet<String> = ENVOY_WORDS.into_iter().map(Into::into).collect();
        collect_words(&crate::file_format::schema(), &mut words);
        // Words inside values, which the schema describes by patterns.
        let in_values = rate::words().chain(METHODS).chain(Lint::ALL.iter().map(|it| it.code()));
        words.extend(in_values.map(str::to_owned));
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

/// Collects every word of the schema: names of fields, and enumerated values.
fn collect_words(part: &Value, words: &mut HashSet<String>) {
    match part {
        Value::Object(members) => {
            for (name, member) in members {
                words.insert(name.clone());
                collect_words(member, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_words(item, words)),
        Value::String(text) if !text.contains(char::is_whitespace) => drop(words.insert(text.clone())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    fn brief(text: &str) -> String {
        Policy::parse(text).unwrap_err().brief("p.yaml")
    }

    #[test]
    fn a_line_names_the_place_the_mistake_and_the_way_out() {
        let said = brief("limits:\n  - {by: ip, bucket: 10/minuet}\n");
        assert!(said.starts_with("p.yaml:2:25: ") && said.contains("did you mean `minute`?"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(brief("limits:\n- {by: ipp, bukcet: 1/s}\n").lines().count(), 2);
        assert!(brief("limits: [{by: ip, bucket: 1/s, missing: no}]").contains("`missing` cannot be `no`"));
    }

    #[test]
    fn a_hint_is_shown_whole_also_where_the_file_has_the_word_elsewhere() {
        let said = brief("limits:\n  - {by: ip, bucket: 10/minuet}\n  - {by: user, bucket: 10/minute}\n");
        assert!(said.contains("`minuet`") && said.contains("did you mean `minute`?"), "{said}");
        let said = brief("limits:\n  - {by: ip, algorithm: sliding-windwo, rate: 1/s}\n");
        assert!(said.contains("`sliding-windwo`") && said.contains("`sliding-window`"), "{said}");
        let said = brief("limits:\n  - {by: ip, bukcet: 1/s, bucket: 10/minute}\n");
        assert!(said.contains("`bukcet`") && said.contains("`bucket`"), "{said}");
        let odd = "limits: [{by: ip, method: DELTE, bucket: 1/s}, {by: ip, method: DELETE, bucket: 1/s}]";
        let said = Policy::parse(odd).unwrap().warnings().brief("p.yaml");
        assert!(said.contains("`DELTE`") && said.contains("`DELETE`"), "{said}");
        let said = brief("limits: [{by: ip, bucket: 10/minute/5}, {by: user, bucket: 10/minute}]");
        assert!(said.contains("minute"), "{said}");
    }

    #[test]
    fn a_hint_shows_no_value_that_only_stands_near_it() {
        for text in [
            "limits: [{by: ip, bucket: 1/s}]\nallow: [sk-live-51secret]",
            "limits: [{by: ip, bucket: 1/s}]\nallow: [4929123456789]",
            "limits: [{by: ip, bucket: 1/s}]\nallow: [hunter2hunter2]",
        ] {
            let said = brief(text);
            assert!(
                !said.contains("51secret") && !said.contains("3456789") && !said.contains("hunter2"),
                "{said}"
            );
        }
    }

    #[test]
    fn no_mistake_shows_a_key_whole() {
        const KEY: &str = "sk-live-51secretsecret";
        let limit = "limits: [{by: api_key, bucket: 1/s}]";
        for text in [
            format!("{limit}\nallow: [{KEY}]"),
            format!("{limit}\nallow: [{{api_key: {KEY}, ipp: 1}}]"),
            format!("{limit}\nallow: [{{api-key: {KEY}}}]"),
            format!("{limit}\ndeny: [{{ip: {KEY}}}]"),
            format!("{limit}\nallow: {KEY}"),
            format!("{limit}\nallow: [{{{KEY}: 1}}]"),
            format!("{limit}\nallow: [{{api_key: {{{KEY}: 1}}}}]"),
            format!("{limit}\nallow:\n  - api_key:{KEY}\n"),
            format!("{limit}\nallow:\n  - api_key: {KEY}\n    {KEY}\n"),
            format!("{limit}\nallow:\n  - api_key: [{KEY}\n"),
            format!("{limit}\nallow: [{{api_key: `{KEY}}}]\n"),
            format!("{limit}\n{KEY}: 1\n"),
            format!("{limit}\n{KEY}\n"),
            format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: 1/fortnight}}}}]"),
            format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: nonsense}}}}]"),
            format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: [1]}}}}]"),
            format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: 1/s, {KEY}: 2/s}}}}]"),
            format!(
                "limits: [{{by: api_key, bucket: 1/s, overrides: {{a: 1/s, \"{KEY} \": 2/s, '{KEY} ': 1}}}}]"
            ),
            format!("limits: [{{by: ip, bucket: 1/s, overrides: {{{KEY}: 1/s}}}}]"),
            format!("limits: [{{by: api_key, bucket: 1/s, {KEY}: 1/s}}]"),
            format!("limits: [{{by: {KEY}, bucket: {KEY}, name: '{KEY}!', method: {KEY}!, mode: {KEY}}}]"),
            format!("limits: [{{by: [{{header: {KEY}}}], cost: {KEY}, endpoint: {KEY}, host: {KEY}/}}]"),
        ] {
            let said = brief(&text);
            assert!(!said.to_lowercase().contains(&KEY[..8]), "{text}\n{said}");
            assert!(!said.contains(&format!("{}!", &KEY[5..])), "{text}\n{said}");
        }
        let long = KEY.repeat(9);
        assert!(!brief(&format!("{limit}\nallow: [{long}]")).contains("sk-live"));
    }
}
