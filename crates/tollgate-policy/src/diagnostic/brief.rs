//! Shows a diagnostic in one line, for readers who may not see the file.
//!
//! The readiness of a server is no secret and its log is read by many, and a
//! policy may hold API keys: under `allow`, as names of `overrides`, or anywhere
//! after a slip of the hand. So no line of the file is shown, and what a message
//! quotes from it is cut as keys are cut everywhere (`privacy`), unless it is a
//! word of the format.

use std::collections::HashSet;

use serde_json::Value;

use super::{Diagnostic, Severity, Sources, excerpt, store};

/// How much of a quoted value is shown, in characters.
const SHOWN: usize = 4;

/// Words of Envoy's files, which are read with the same tools.
const OF_ENVOY: [&str; 16] = [
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

/// What is needed to tell a word of the format from what may be a secret.
pub(super) struct Brief {
    /// All that was written, in lower case: messages may change the case.
    written: String,
    words: HashSet<String>,
}

impl Brief {
    pub(super) fn new(sources: &Sources) -> Self {
        let mut words: HashSet<String> = OF_ENVOY.into_iter().map(Into::into).collect();
        collect_words(&crate::written::schema(), &mut words);
        Self { written: sources.texts().map(str::to_lowercase).collect::<Vec<_>>().join("\n"), words }
    }

    /// `FILE:LINE:COLUMN: message (label; help)`, with a line break behind it.
    pub(super) fn render(&self, it: &Diagnostic, sources: &Sources, file: &str, out: &mut String) {
        let said = |text: &str| excerpt::printable(&self.veiled(&store::said(it, sources, text)));
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

    /// The same text, without the values that stand between backticks.
    fn veiled(&self, text: &str) -> String {
        let pieces: Vec<_> = text.split('`').collect();
        // An odd backtick is one of a value: nobody knows any more where values begin.
        let all = pieces.len().is_multiple_of(2);
        let veil = |(at, piece): (usize, &&str)| {
            if all || at % 2 == 1 { self.veiled_value(piece) } else { (*piece).to_owned() }
        };
        pieces.iter().enumerate().map(veil).collect::<Vec<_>>().join("`")
    }

    fn veiled_value(&self, text: &str) -> String {
        let ends = |char: char| char.is_whitespace() || ":,{}[]\"'".contains(char);
        let mut out = String::new();
        for piece in text.split_inclusive(ends) {
            let word = piece.trim_end_matches(ends);
            let cut = match word.char_indices().nth(SHOWN) {
                Some((at, _)) if self.may_be_secret(word) => Some(at),
                _ => None,
            };
            match cut {
                Some(at) => out.extend([&word[..at], "…", &piece[word.len()..]]),
                None => out.push_str(piece),
            }
        }
        out
    }

    fn may_be_secret(&self, word: &str) -> bool {
        // Long values come here cut already, and endpoints with the slash that they lack.
        let word = word.strip_suffix("...").unwrap_or(word).trim_start_matches('/');
        !self.words.contains(word) && self.written.contains(&word.to_lowercase())
    }
}

/// Every word of the schema: names of fields, and values to choose from.
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
