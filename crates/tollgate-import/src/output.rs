//! Writes a policy from untrusted names and values.
//!
//! Values are quoted, comments stay on their line, names are made unique. A limit that
//! [`Policy::parse`] would refuse becomes a comment with the reason, so that the
//! output is always a valid policy.

use std::collections::{HashMap, HashSet};

use tollgate::Policy;
use tollgate_document::sanitize::{is_unprintable, printable};

use crate::ImportedPolicy;

/// The maximum width of a comment line in characters.
const COMMENT_WIDTH: usize = 110;
/// The maximum number of characters of an input text that a comment quotes.
const MAX_QUOTED_CHARS: usize = 200;
/// The maximum length of a name in bytes (`FORMAT.md`).
const MAX_NAME_BYTES: usize = 64;

/// A limit while it is built.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitDraft {
    name: String,
    /// Comments above the limit: its origin and its differences.
    comments: Vec<String>,
    /// Word and value, the value as YAML.
    fields: Vec<(&'static str, String)>,
    /// The reasons why the limit cannot be active.
    hindrances: Vec<String>,
}

impl LimitDraft {
    /// Creates a limit. The name need not be valid or unique yet.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a line above the limit.
    pub(crate) fn comment(&mut self, text: impl Into<String>) -> &mut Self {
        self.comments.push(text.into());
        self
    }

    /// Adds a value without quoting: a number or rate from this crate.
    pub(crate) fn plain(&mut self, word: &'static str, value: impl Into<String>) -> &mut Self {
        self.fields.push((word, value.into()));
        self
    }

    /// Adds a value with arbitrary text, quoted if necessary.
    pub(crate) fn word(&mut self, word: &'static str, value: &str) -> &mut Self {
        self.plain(word, scalar(value))
    }

    /// Adds one or several values; no field for an empty list.
    pub(crate) fn list(&mut self, word: &'static str, values: &[String]) -> &mut Self {
        match values {
            [] => self,
            [one] => self.word(word, one),
            _ => self.always_list(word, values),
        }
    }

    /// Adds values as a list, even if there is one.
    pub(crate) fn always_list(&mut self, word: &'static str, values: &[String]) -> &mut Self {
        let values: Vec<_> = values.iter().map(|it| scalar(it)).collect();
        self.plain(word, format!("[{}]", values.join(", ")))
    }

    /// Adds a reason why this limit cannot be active.
    pub(crate) fn hindered(&mut self, reason: impl Into<String>) -> &mut Self {
        self.hindrances.push(reason.into());
        self
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let mut lines = vec![format!("- name: {}", scalar(name))];
        lines.extend(self.fields.iter().map(|(word, value)| format!("  {word}: {value}")));
        lines
    }
}

/// A policy while it is built.
pub(crate) struct Output {
    head: String,
    body: String,
    in_force: usize,
    notes: Vec<String>,
    names: HashSet<String>,
    /// The number of requests for each name, from which numbering continues.
    wanted: HashMap<String, usize>,
}

impl Output {
    /// Creates a policy imported from `file` by `tollgate import KIND`.
    pub(crate) fn new(kind: &str, file: &str) -> Self {
        let mut out = Self {
            head: String::new(),
            body: String::new(),
            in_force: 0,
            notes: Vec::new(),
            names: HashSet::new(),
            wanted: HashMap::new(),
        };
        let origin = format!("Made by `tollgate import {kind}` from {}.", quoted(file));
        comment(&mut out.head, "", &origin);
        comment(
            &mut out.head,
            "",
            "Comments describe the differences. Limits that begin with `#` are not in force.",
        );
        out
    }

    /// Adds a note about the whole file.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = printable(&text.into());
        comment(&mut self.head, "", &text);
        self.notes.push(text);
    }

    /// Adds a limit, or a comment in its place.
    pub(crate) fn limit(&mut self, mut draft: LimitDraft) {
        let name = self.unique(&draft.name);
        let lines = draft.lines(&name);
        if draft.hindrances.is_empty()
            && let Err(mistakes) = Policy::parse(&format!("limits:\n  {}\n", lines.join("\n  ")))
        {
            let said = mistakes.first().map_or("it is not a valid limit", |it| it.message.as_str());
            draft.hindrances.push(said.to_owned());
        }
        if !self.body.is_empty() {
            self.body.push('\n');
        }
        for text in &draft.comments {
            comment(&mut self.body, "  ", text);
        }
        self.notes.extend(draft.comments.iter().skip(1).map(|it| format!("{name}: {}", printable(it))));
        for text in &draft.hindrances {
            comment(&mut self.body, "  ", &format!("NOT IN FORCE: {text}"));
            self.notes.push(format!("{name}: not in force: {}", printable(text)));
        }
        let mark = if draft.hindrances.is_empty() { "" } else { "# " };
        for line in lines {
            self.body.extend(["  ", mark, &line, "\n"]);
        }
        self.in_force += usize::from(draft.hindrances.is_empty());
    }

    /// Returns the policy and the notes.
    pub(crate) fn finish(mut self) -> ImportedPolicy {
        if self.in_force == 0 {
            // Only comments follow, and `limits` must be a list.
            self.notes.push("no limit of the file is in force".to_owned());
            let policy = format!("{}limits: []\n{}", self.head, self.body);
            return ImportedPolicy { policy, notes: self.notes };
        }
        let policy = format!("{}limits:\n{}", self.head, self.body);
        ImportedPolicy { policy, notes: self.notes }
    }

    /// Returns a valid name that no limit has yet.
    fn unique(&mut self, wanted: &str) -> String {
        let stem = slug(wanted);
        let mut name = stem.clone();
        let count = self.wanted.entry(stem.clone()).or_insert(1);
        while !self.names.insert(name.clone()) {
            *count += 1;
            let ending = format!("-{count}");
            name = format!("{}{ending}", &stem[..stem.len().min(MAX_NAME_BYTES - ending.len())]);
        }
        name
    }
}

/// Keeps characters that are valid in a name, and replaces others by single hyphens.
fn slug(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        if char.is_ascii_alphanumeric() || matches!(char, '.' | '_') {
            out.push(char);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
        if out.len() >= MAX_NAME_BYTES {
            break;
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "limit".to_owned() } else { out.to_owned() }
}

/// Quotes a text with backticks, printable and shortened.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("`{}`", printable(&short))
}

/// Writes one comment over as many lines as necessary.
fn comment(out: &mut String, indent: &str, text: &str) {
    let mut line = String::new();
    for word in printable(text).split(' ') {
        if !line.is_empty() && line.chars().count() + word.chars().count() >= COMMENT_WIDTH {
            out.extend([indent, "# ", &line, "\n"]);
            line = String::from("  ");
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.extend([indent, "# ", line.trim_end(), "\n"]);
}

/// Formats a text as a YAML scalar, quoted unless it is a plain word.
pub(crate) fn scalar(text: &str) -> String {
    let plain = text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '/')
        && text.ends_with(|it: char| it.is_ascii_alphanumeric() || matches!(it, '/' | '*' | '-' | '_'))
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_./:*=-".contains(&it))
        && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            _ if is_unprintable(char) => out.extend(["\\U", &format!("{:08X}", u32::from(char))]),
            _ => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    #[test]
    fn a_quoted_text_is_read_back_as_it_was() {
        for text in
            ["a", "", " a", "a: b", "a #b", "\"", "\\", "a\nb", "\u{85}\u{2028}", "null", "*", "- x", "漢"]
        {
            let yaml = format!("a: {}\nb: [{}]\n", scalar(text), scalar(text));
            let document = Document::parse(&yaml).unwrap_or_else(|error| panic!("{error} in {yaml}"));
            let read = document.root().get("a").and_then(|it| it.text());
            assert_eq!(read, Some(text), "{yaml}");
        }
    }

    #[test]
    fn a_comment_never_becomes_a_line_of_the_policy() {
        for text in ["a\nlimits: []", "a\rb: c", "a\u{2028}b", "a\u{85}b", "a\0b"] {
            let mut draft = LimitDraft::new(text);
            draft.comment(text).hindered(text).word("by", text);
            let mut out = Output::new("nginx", text);
            out.note(text);
            out.limit(draft);
            let policy = out.finish().policy;
            let lines = policy.split(['\n', '\r', '\u{85}', '\u{2028}']).filter(|it| !it.trim().is_empty());
            assert!(
                lines.clone().all(|it| it.trim_start().starts_with('#') || it == "limits: []"),
                "{policy}"
            );
            assert!(Policy::parse(&policy).is_ok(), "{policy}");
        }
    }

    #[test]
    fn names_are_valid_and_unique() {
        let mut out = Output::new("nginx", "x");
        let long = "x".repeat(100);
        for wanted in ["a b", "a-b", "", "...", "héé", &long, &long] {
            let mut draft = LimitDraft::new(wanted);
            draft.word("by", "ip").plain("bucket", "1/second");
            out.limit(draft);
        }
        let imported = out.finish();
        let policy = Policy::parse(&imported.policy).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(policy.limits().len(), 7, "{}", imported.policy);
    }
}
