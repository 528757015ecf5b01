//! The `privacy` section: how keys appear in responses, records and logs.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

use tollgate_document::{Mistake, Node, Problems, Words};

#[cfg(feature = "schema")]
use super::sections::word_schema;
use crate::key_display::{KeyDisplay, ShownPart};
use crate::settings::KeyPrivacy;

/// The maximum length of a label in characters: labels appear in columns and sentences.
const MAX_LABEL_CHARS: usize = 60;

/// How keys appear in responses, records and logs.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct Privacy {
    /// In plain text, as a keyed hash, or truncated. Default `plain`. API keys, cookies and other credentials are never shown in full.
    #[cfg_attr(feature = "schema", schemars(with = "Option<PrivacyWord>"))]
    keys: Option<KeyPrivacy>,
    /// The visible characters of a redacted key. Default `prefix`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ShownPartWord>"))]
    show: Option<ShownPart>,
    /// Labels by key: shown before the key wherever it appears.
    #[cfg_attr(feature = "schema", schemars(with = "Option<BTreeMap<String, String>>"))]
    labels: BTreeMap<String, String>,
}

pub(crate) const PRIVACY: Words = Words {
    section: "`privacy`",
    known: &["keys", "show", "labels"],
    synonyms: &[("labels: {KEY: NAME}", &["label", "names"]), ("show: suffix", &["suffix"])],
};

const KEYS: [(&str, KeyPrivacy); 3] =
    [("plain", KeyPrivacy::Plain), ("hashed", KeyPrivacy::Hashed), ("truncated", KeyPrivacy::Truncated)];
const SHOW: [(&str, ShownPart); 3] =
    [("prefix", ShownPart::Prefix), ("suffix", ShownPart::Suffix), ("both", ShownPart::Both)];

#[cfg(feature = "schema")]
word_schema! {
    PrivacyWord: KEYS;
    ShownPartWord: SHOW;
}

impl Privacy {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&PRIVACY, problems)?;
        let keys = fields.get("keys").and_then(|node| node.choice("`keys`", &KEYS, problems));
        let show = fields.get("show").and_then(|node| node.choice("`show`", &SHOW, problems));
        let labels = fields.get("labels").map(|node| labels(node, problems)).unwrap_or_default();
        Some(Self { keys: keys.map(|keys| keys.value), show: show.map(|show| show.value), labels })
    }

    pub(crate) fn into_display(self) -> KeyDisplay {
        KeyDisplay::new(self.keys.unwrap_or_default(), self.show.unwrap_or_default(), self.labels)
    }
}

/// Reads the labels. No message quotes a key.
fn labels(node: &Node, problems: &mut Problems) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for entry in node.entries("`labels`", problems).unwrap_or_default() {
        let Some(label) = entry.value.word("a label", problems) else { continue };
        let is_text = |char: char| !char.is_control();
        let chars = label.value.trim().chars().count();
        if !(1..=MAX_LABEL_CHARS).contains(&chars) || !label.value.chars().all(is_text) {
            Mistake::new(format!("a label has 1 to {MAX_LABEL_CHARS} characters on one line"))
                .label(format!("this has {chars}"))
                .report(&entry.value, problems);
            continue;
        }
        labels.insert(entry.name.value.clone(), label.value.trim().to_owned());
    }
    labels
}
