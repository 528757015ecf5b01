//! The sections of a file, with typed access to their values.
//!
//! A word in the wrong section causes only a warning: envoyproxy/ratelimit
//! has one list of words for all sections and ignores a known word in the wrong
//! section, so files with such words exist.
//!
//! `file_format` interprets the words.

use tollgate::policy::Lint;
use tollgate_document::{Entry, Kind, Located, Node, Place, Problems, nearest};

/// The words of one section.
#[derive(Debug)]
pub(crate) struct Section {
    /// The name in messages, with its article.
    pub(crate) called: &'static str,
    /// The known words.
    pub(crate) words: &'static [&'static str],
    /// The known words as a sentence, for help.
    listed: &'static str,
    /// An example for help.
    example: &'static str,
}

pub(crate) const FILE: Section = Section {
    called: "a rate limit file",
    words: &["domain", "descriptors"],
    listed: "domain and descriptors",
    example: "domain: NAME",
};
pub(crate) const DESCRIPTOR: Section = Section {
    called: "a descriptor",
    words: &[
        "key",
        "value",
        "rate_limit",
        "descriptors",
        "shadow_mode",
        "quota_mode",
        "share_threshold",
        "detailed_metric",
        "value_to_metric",
        "metadata",
    ],
    listed: "key, value, rate_limit, descriptors, shadow_mode, quota_mode, share_threshold, \
             detailed_metric, value_to_metric and metadata",
    example: "key: NAME",
};
pub(crate) const RATE_LIMIT: Section = Section {
    called: "a `rate_limit`",
    words: &["unit", "requests_per_unit", "unlimited", "name", "replaces"],
    listed: "unit, requests_per_unit, unlimited, name and replaces",
    example: "{unit: minute, requests_per_unit: 10}",
};
pub(crate) const REPLACES: Section =
    Section { called: "an entry of `replaces`", words: &["name"], listed: "name", example: "name: NAME" };

const SECTIONS: [&Section; 4] = [&FILE, &DESCRIPTOR, &RATE_LIMIT, &REPLACES];

/// The values of a section.
#[derive(Debug)]
pub(crate) struct Fields<'d> {
    entries: &'d [Entry],
    /// The suggestions for unknown words.
    meant: Vec<&'static str>,
    /// The place where the section begins.
    pub(crate) place: Place,
}

impl Section {
    /// Reads the section at `node`. Returns `None` if the node is not a map.
    pub(crate) fn read<'d>(&self, node: &'d Node, problems: &mut Problems) -> Option<Fields<'d>> {
        let Kind::Map(entries) = &node.kind else {
            problems
                .error(node.place, format!("{} is a map of `name: value` lines", self.called))
                .label(format!("this is {}", node.describe()))
                .help(format!("write something like `{}`", self.example));
            return None;
        };
        let mut meant = Vec::new();
        for Entry { name, .. } in entries.iter().filter(|it| !self.words.contains(&it.name.value.as_str())) {
            let word = name.value.as_str();
            if let Some(home) = SECTIONS.iter().find(|it| it.words.contains(&word)) {
                problems
                    .warning(
                        Lint::EnvoyIdleWord,
                        name.place,
                        format!("`{word}` has no effect in {}", self.called),
                    )
                    .label(format!("it belongs in {}", home.called));
                continue;
            }
            let problem =
                problems.error(name.place, format!("unknown word {} in {}", quoted(word), self.called));
            match nearest(word, self.words.iter().copied()) {
                Some(here) => {
                    problem.label(format!("did you mean `{here}`?"));
                    meant.push(here);
                }
                None => {
                    problem.help(format!("{} has {}", self.called, self.listed));
                }
            }
        }
        Some(Fields { entries, meant, place: node.place })
    }
}

impl<'d> Fields<'d> {
    /// Returns the entry of `word`, if it has a value. `word:` alone counts as absent.
    pub(crate) fn entry(&self, word: &str) -> Option<&'d Entry> {
        self.entries.iter().find(|it| it.name.value == word && it.value.kind != Kind::Null)
    }

    /// Returns the value of `word`.
    pub(crate) fn get(&self, word: &str) -> Option<&'d Node> {
        self.entry(word).map(|it| &it.value)
    }

    /// Whether `word` is missing or empty, and not misspelled, which was reported.
    pub(crate) fn lacks(&self, word: &str) -> bool {
        let said = self.get(word).is_some_and(|node| node.text() != Some(""));
        !said && !self.meant.contains(&word)
    }

    /// Returns the place of `word`, with or without a value; else the place of the section.
    pub(crate) fn place_of(&self, word: &str) -> Place {
        self.entries.iter().find(|it| it.name.value == word).map_or(self.place, |it| it.name.place)
    }

    /// Reads a text. Numbers and `true` are their own text; an empty text counts as absent.
    pub(crate) fn text(&self, word: &str, problems: &mut Problems) -> Option<Located<String>> {
        let node = self.get(word).filter(|node| node.text() != Some(""))?;
        Some(node.word(&format!("`{word}`"), problems)?.map(str::to_owned))
    }

    /// Reads a boolean. Returns false if the word is absent, `None` if the value is invalid. Accepts
    /// all booleans of YAML 1.1, which these files are written for.
    pub(crate) fn flag(&self, word: &str, problems: &mut Problems) -> Option<bool> {
        let Some(node) = self.get(word) else { return Some(false) };
        match node.text() {
            Some("y" | "Y" | "yes" | "Yes" | "YES" | "True" | "TRUE" | "on" | "On" | "ON") => Some(true),
            Some("n" | "N" | "no" | "No" | "NO" | "False" | "FALSE" | "off" | "Off" | "OFF") => Some(false),
            _ => Some(node.boolean(&format!("`{word}`"), problems)?.value),
        }
    }

    /// Reads the items of a list.
    pub(crate) fn list(&self, word: &str, of: &str, problems: &mut Problems) -> &'d [Node] {
        match self.get(word) {
            None => &[],
            Some(Node { kind: Kind::List(items), .. }) => items,
            Some(node) => {
                problems
                    .error(node.place, format!("`{word}` is a list of {of}"))
                    .label(format!("this is {}", node.describe()))
                    .help("each item begins with `- ` on a line of its own");
                &[]
            }
        }
    }
}

/// Shortens a text for a message and hides passwords in it.
pub(crate) fn quoted(text: &str) -> String {
    let kind = Kind::Scalar { text: text.to_owned(), quoted: false };
    Node { place: Place::default(), kind }.describe()
}
