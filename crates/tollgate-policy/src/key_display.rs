//! How keys appear to people: the `privacy` section.
//!
//! `keys` says whether keys are shown whole, `show` which characters of a key that is not, and
//! `labels` gives names to keys that an operator knows.
//!
//! Not here: which keys must not be shown whole, and their tags (`redact`).

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::key::MAX_PART_BYTES;
use crate::settings::KeyPrivacy;

/// How many characters of a redacted value are shown at one end.
const SHOWN_CHARS: usize = 4;

/// How keys appear in answers, records and logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyDisplay {
    /// Whether keys are shown whole.
    pub privacy: KeyPrivacy,
    /// Which characters are shown of a key that is not.
    pub part: ShownPart,
    /// Names of keys, by the text of the key.
    labels: BTreeMap<Box<str>, Box<str>>,
}

/// Which characters of a redacted value are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShownPart {
    /// The first four: `sk_l…`.
    #[default]
    Prefix,
    /// The last four: `…9f3a`.
    Suffix,
    /// The first and the last four: `sk_l…9f3a`.
    Both,
}

impl KeyDisplay {
    pub(crate) fn new(
        privacy: KeyPrivacy,
        part: ShownPart,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let labels = labels.into_iter().map(|(key, label)| (as_shown(&key), label.into())).collect();
        Self { privacy, part, labels }
    }

    /// The name of the key with this text, if it has one.
    pub(crate) fn label(&self, text: &str) -> Option<&str> {
        self.labels.get(text).map(|label| &**label)
    }

    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }
}

/// A long key is kept, and shown, as its digest.
fn as_shown(key: &str) -> Box<str> {
    if key.len() <= MAX_PART_BYTES {
        return key.into();
    }
    let digest = Sha256::digest(key.as_bytes());
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}").into()
}

impl ShownPart {
    /// The characters of `text` that are shown, and an ellipsis for the others. At most half of
    /// a text is shown at its end: what is short shows its beginning, or nothing.
    pub(crate) fn of(self, text: &str) -> String {
        let chars = text.chars().count();
        let prefix = match self {
            Self::Prefix | Self::Both if chars > SHOWN_CHARS => SHOWN_CHARS,
            _ => 0,
        };
        let suffix = match self {
            Self::Suffix if chars > 2 * SHOWN_CHARS => SHOWN_CHARS,
            Self::Both if chars > 3 * SHOWN_CHARS => SHOWN_CHARS,
            _ => 0,
        };
        let byte_at = |char: usize| text.char_indices().nth(char).map_or(text.len(), |(at, _)| at);
        format!("{}…{}", &text[..byte_at(prefix)], &text[byte_at(chars - suffix)..])
    }
}
