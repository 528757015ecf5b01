//! The `state` section: a directory that outlives the process.
//!
//! It is a path, or a map with the path and with the interval at which the usage of a store in memory is
//! saved. The directory itself is in `crate::state`.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Span;
use tollgate_document::{Kind, Node, Problems, Words};

use super::StoreSettings;
use super::store::or_off;

/// The state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateSettings {
    /// Its path.
    pub(crate) folder: PathBuf,
    /// The interval at which usage is saved, if it is saved.
    pub(crate) usage: Option<Duration>,
}

const STATE: Words = Words {
    section: "`state`",
    known: &["folder", "usage"],
    synonyms: &[
        ("folder", &["dir", "directory", "path"]),
        ("usage", &["snapshot", "snapshots", "counters", "interval"]),
    ],
};

/// The shortest interval: a snapshot of many keys takes some time to write.
const MIN_INTERVAL: Span = Span::from_secs(1);
/// The longest interval, which is forgotten after a crash.
const MAX_INTERVAL: Span = Span::from_hours(1);

impl StateSettings {
    /// Parses the section.
    pub(crate) fn read(node: &Node, store: &StoreSettings, problems: &mut Problems) -> Option<Self> {
        let Kind::Map(_) = &node.kind else {
            let folder = node.word("`state`", problems)?.value.into();
            return Some(Self { folder, usage: None });
        };
        let fields = node.fields(&STATE, problems)?;
        let mut usage = None;
        if let Some(node) = fields.get("usage") {
            usage = or_off(node, "`usage`", MIN_INTERVAL..=MAX_INTERVAL, problems).filter(|it| !it.is_zero());
            if usage.is_some() && *store != StoreSettings::Memory {
                problems
                    .error(node.place, "`usage` saves what a store in memory has counted")
                    .label("the store of this file keeps it already")
                    .help("leave `usage` out: in a shared store, usage outlives this process");
            }
        }
        let Some(folder) = fields.get("folder") else {
            if !fields.mentions("folder") {
                problems
                    .error(fields.place(), "`state` has no `folder`")
                    .help("such as `folder: /var/lib/tollgate`");
            }
            return None;
        };
        Some(Self { folder: folder.word("`folder`", problems)?.value.into(), usage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn read(text: &str) -> (Option<StateSettings>, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let node = |word| document.root().get(word);
        let store = node("store").map(|it| StoreSettings::read(it, &mut problems)).unwrap_or_default();
        let state = StateSettings::read(node("state").unwrap(), &store, &mut problems);
        let found = problems.into_diagnostics(&document);
        (state, found.iter().map(|it| it.message.clone()).collect())
    }

    #[test]
    fn a_directory_saves_usage_if_it_is_told_to() {
        let state = |usage: Option<u64>| StateSettings {
            folder: "/var/lib/tollgate".into(),
            usage: usage.map(Duration::from_secs),
        };
        for (text, expected) in [
            ("state: /var/lib/tollgate", None),
            ("state: {folder: /var/lib/tollgate}", None),
            ("state: {folder: /var/lib/tollgate, usage: off}", None),
            ("state: {folder: /var/lib/tollgate, usage: 10s}", Some(10)),
        ] {
            assert_eq!(read(text), (Some(state(expected)), Vec::new()), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_located() {
        for (text, expected) in [
            ("state: [x]", "`state` is one value, not a list"),
            ("state: {usage: 10s}", "`state` has no `folder`"),
            ("state: {dir: /x}", "unknown word `dir` in `state`"),
            ("state: {folder: /x, usage: 10ms}", "`usage` is between 1s and 1h"),
            ("state: {folder: /x, usage: 2h}", "`usage` is between 1s and 1h"),
            (
                "store: redis://h\nstate: {folder: /x, usage: 10s}",
                "`usage` saves what a store in memory has counted",
            ),
        ] {
            assert_eq!(read(text).1, [expected], "{text}");
        }
    }
}
