//! The differences between two configurations.

use std::fmt;

use tollgate_document::{Document, Kind, Node};

use crate::configuration::SECTIONS;

/// The limits, sections and files that were added, removed or changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
    /// Sections of the policy other than the limits.
    sections: Vec<String>,
    /// Envoy's files that were added, removed or changed.
    files: Vec<String>,
}

impl Changes {
    /// Compares two configurations, each with the names of its limits in file order.
    pub(crate) fn between(old: (&Document, &[String]), new: (&Document, &[String])) -> Self {
        let (before, after) = (limits(old), limits(new));
        let find = |all: &[(String, Node)], name: &str| -> Option<Node> {
            all.iter().find(|(known, _)| known == name).map(|(_, node)| node.clone())
        };
        let mut changes = Self::default();
        for (name, node) in &after {
            match find(&before, name) {
                None => changes.added.push(name.clone()),
                Some(known) if !alike(&known, node) => changes.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        let gone = before.iter().filter(|(name, _)| find(&after, name).is_none());
        changes.removed = gone.map(|(name, _)| name.clone()).collect();
        let theirs = different_sections(old.0, new.0);
        changes.sections =
            theirs.into_iter().filter(|it| it != "limits" && !SECTIONS.contains(&it.as_str())).collect();
        changes
    }
}

impl Changes {
    /// Adds the differences of Envoy's files, each given by name and text.
    pub(crate) fn with_files(mut self, old: &[(String, String)], new: &[(String, String)]) -> Self {
        let find = |all: &[(String, String)], name: &str| -> Option<String> {
            all.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
        };
        for (name, text) in new {
            match find(old, name) {
                None => self.files.push(format!("{name} (new)")),
                Some(known) if known != *text => self.files.push(name.clone()),
                Some(_) => {}
            }
        }
        let gone = old.iter().filter(|(name, _)| find(new, name).is_none());
        self.files.extend(gone.map(|(name, _)| format!("{name} (gone)")));
        self
    }
}

/// Returns the changed settings, which take a restart.
pub(crate) fn settings(old: &Document, new: &Document) -> Vec<String> {
    different_sections(old, new).into_iter().filter(|it| SECTIONS.contains(&it.as_str())).collect()
}

fn limits((document, names): (&Document, &[String])) -> Vec<(String, Node)> {
    let items = document.root().get("limits").map_or(&[][..], Node::items);
    names.iter().cloned().zip(items.iter().cloned()).collect()
}

fn different_sections(old: &Document, new: &Document) -> Vec<String> {
    let entries = |document: &'_ Document| match &document.root().kind {
        Kind::Map(entries) => entries.iter().map(|entry| entry.name.value.clone()).collect(),
        _ => Vec::new(),
    };
    let mut names = entries(old);
    names.extend(entries(new).into_iter().filter(|name| old.root().get(name).is_none()));
    names.retain(|name| match (old.root().get(name), new.root().get(name)) {
        (Some(old), Some(new)) => !alike(old, new),
        _ => true,
    });
    names
}

/// Whether two nodes are equal, ignoring positions and order.
fn alike(one: &Node, other: &Node) -> bool {
    match (&one.kind, &other.kind) {
        (Kind::Null, Kind::Null) => true,
        (Kind::Scalar { text: one, .. }, Kind::Scalar { text: other, .. }) => one == other,
        (Kind::List(one), Kind::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Kind::Map(one), Kind::Map(entries)) => {
            one.len() == entries.len()
                && one
                    .iter()
                    .all(|entry| other.get(&entry.name.value).is_some_and(|it| alike(&entry.value, it)))
        }
        _ => false,
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("changed beside the limits", &self.sections),
            ("changed for Envoy", &self.files),
        ];
        let mut first = true;
        for (what, names) in parts.iter().filter(|(_, names)| !names.is_empty()) {
            let shown: Vec<_> = names.iter().take(20).map(String::as_str).collect();
            let more = names.len() - shown.len();
            write!(f, "{}{what} {}", if first { "" } else { "; " }, shown.join(", "))?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
            first = false;
        }
        if first { f.write_str("nothing is different") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::Policy;

    fn read(text: &str) -> (Document, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let policy = Policy::from_document(&document).unwrap();
        let names = policy.limits().iter().map(|limit| limit.name().to_owned()).collect();
        (document, names)
    }

    fn between(old: &str, new: &str) -> String {
        let (old, new) = (read(old), read(new));
        Changes::between((&old.0, &old.1), (&new.0, &new.1)).to_string()
    }

    const OLD: &str =
        "limits:\n  - {name: a, by: ip, bucket: 5/minute}\n  - {endpoint: /b, by: user, bucket: 5/minute}\n";

    #[test]
    fn limits_are_told_apart_by_name() {
        for (new, expected) in [
            (OLD, "nothing is different"),
            (
                "# moved, in another order, with other quotes\nlimits: [{endpoint: /b, bucket: \"5/minute\", by: user}, {name: a, by: ip, bucket: 5/minute}]",
                "nothing is different",
            ),
            (
                "limits: [{name: a, by: ip, bucket: 6/minute}, {endpoint: /b, by: user, bucket: 5/minute}]",
                "changed a",
            ),
            ("limits: [{name: a, by: ip, bucket: 5/minute}]", "removed b-by-user"),
            (
                "limits: [{name: c, by: ip, bucket: 5/minute}, {endpoint: /b, by: user, bucket: 1/s}]\nprivacy: {keys: hashed}",
                "added c; removed a; changed b-by-user; changed beside the limits privacy",
            ),
        ] {
            assert_eq!(between(OLD, new), expected, "{new}");
        }
    }

    #[test]
    fn files_of_envoy_are_told_apart_by_name() {
        let files = |texts: &[(&str, &str)]| -> Vec<(String, String)> {
            texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let old = files(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let described = |new: &[(&str, &str)]| Changes::default().with_files(&old, &files(new)).to_string();
        assert_eq!(described(&[("a", "1"), ("b", "1"), ("c", "1")]), "nothing is different");
        assert_eq!(
            described(&[("a", "1"), ("b", "2"), ("d", "1")]),
            "changed for Envoy b, d (new), c (gone)"
        );
    }

    #[test]
    fn a_setting_that_came_went_or_changed_takes_a_restart() {
        let document = |text: &str| Document::parse(text).unwrap();
        let old = document("listen: {api: off}\nlog: {level: info}\nlimits: []");
        for (new, expected) in [
            ("limits: [x]\nlog: {level: info}\nlisten: {api: off}", ""),
            ("listen: {api: off}\nlog: {level: debug}", "log"),
            ("listen: {api: off}\nlog: {level: info}\nstore: memory", "store"),
            ("gateway: {upstream: demo}", "listen log gateway"),
        ] {
            assert_eq!(settings(&old, &document(new)).join(" "), expected, "{new}");
        }
    }
}
