//! The display of keys: the `privacy` section.
//!
//! `keys` selects whether keys are shown in full, `show` selects the visible characters of a
//! redacted key, and `labels` assigns names to keys.
//!
//! `redact` decides which keys are never shown in full, and computes their tags.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::key::MAX_PART_BYTES;
use crate::settings::KeyPrivacy;

/// The number of characters of a redacted value that are shown at one end.
const SHOWN_CHARS: usize = 4;

/// How keys appear in responses, records and logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyDisplay {
    /// Whether keys are shown in full.
    pub privacy: KeyPrivacy,
    /// The characters of a redacted key that are shown.
    pub part: ShownPart,
    /// Labels by the text of the key.
    labels: BTreeMap<Box<str>, Box<str>>,
}

/// The characters of a redacted value that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
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

    /// Returns the label of the key with this text, if it has one.
    pub(crate) fn label(&self, text: &str) -> Option<&str> {
        self.labels.get(text).map(|label| &**label)
    }

    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }
}

/// Returns the text under which a key is shown: the digest of a long key.
fn as_shown(key: &str) -> Box<str> {
    if key.len() <= MAX_PART_BYTES {
        return key.into();
    }
    let digest = Sha256::digest(key.as_bytes());
    let first = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("sha256:{first:016x}").into()
}

impl ShownPart {
    /// Returns the visible characters of `text`, as [`redact`](Self::redact) leaves them.
    pub(crate) fn of(self, text: &str) -> String {
        let mut shown = text.to_owned();
        self.redact(&mut shown, 0);
        shown
    }

    /// Replaces the characters of `text` from `start` on that are not visible by an ellipsis. At most half of
    /// a text is shown at its end: a short text shows its beginning, or nothing.
    pub(crate) fn redact(self, text: &mut String, start: usize) {
        let value = &text[start..];
        let chars = value.chars().count();
        let prefix = match self {
            Self::Prefix | Self::Both if chars > SHOWN_CHARS => SHOWN_CHARS,
            _ => 0,
        };
        let suffix = match self {
            Self::Suffix if chars > 2 * SHOWN_CHARS => SHOWN_CHARS,
            Self::Both if chars > 3 * SHOWN_CHARS => SHOWN_CHARS,
            _ => 0,
        };
        let byte_at = |char: usize| value.char_indices().nth(char).map_or(value.len(), |(at, _)| at);
        let hidden = start + byte_at(prefix)..start + byte_at(chars - suffix);
        text.replace_range(hidden, "…");
    }
}
