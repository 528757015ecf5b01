//! The record of mode changes, and the data saved for the next start.
//!
//! Text from operators is truncated and stripped of control characters, so that it is safe in terminals
//! and files.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tollgate_api::{MAX_CHANGES, MAX_NAME_CHARS, MAX_REASON_CHARS};
use tollgate_document::sanitize::is_unprintable;

use super::Actor;
use super::state::{Switch, Target};
use crate::access::Role;
use crate::status::date;

/// Overrides and changes as plain data, to be saved for the next start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedOverrides {
    /// The override of everything.
    pub everything: Switch,
    /// The overrides of limits, by name. An override of a limit that the policy does not have stays
    /// dormant.
    pub limits: BTreeMap<String, Switch>,
    /// The recorded changes, the oldest first.
    pub changes: VecDeque<Change>,
}

/// A recorded change of a mode: target, author, time and reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The time, in RFC 3339.
    pub at: String,
    /// The limit; `None` for everything.
    pub limit: Option<String>,
    /// The override before.
    pub from: Switch,
    /// The override after.
    pub to: Switch,
    /// The reason that the operator gave; may be empty.
    pub reason: String,
    /// The name that the operator gave; may be empty.
    pub by: String,
    /// The role of the operator.
    pub role: Role,
    /// The address of the operator.
    pub peer: Option<IpAddr>,
    /// The subject of the certificate that the operator presented. Unlike `by`, it was verified.
    #[serde(default)]
    pub certificate: Option<String>,
}

impl Change {
    pub(super) fn new(target: Target<'_>, from: Switch, to: Switch, who: &Actor) -> Self {
        let limit = match target {
            Target::Everything => None,
            Target::Limit(name) => Some(name.to_owned()),
        };
        Self {
            at: date(who.at),
            limit,
            from,
            to,
            reason: cleaned(&who.reason, MAX_REASON_CHARS),
            by: cleaned(&who.by, MAX_NAME_CHARS),
            role: who.role,
            peer: who.peer,
            certificate: who.certificate.as_deref().map(|it| cleaned(it, MAX_NAME_CHARS)),
        }
    }
}

impl SavedOverrides {
    /// Truncates to the limits of this module, because the file may have been edited by hand.
    pub(super) fn bounded(mut self) -> Self {
        self.limits.retain(|_, switch| *switch != Switch::Policy);
        // A change that was saved by a retry may occur twice.
        let mut last = None;
        self.changes.retain(|change| last.replace(change.clone()).as_ref() != Some(change));
        self.changes.drain(..self.changes.len().saturating_sub(MAX_CHANGES));
        for change in &mut self.changes {
            change.by = cleaned(&change.by, MAX_NAME_CHARS);
            change.reason = cleaned(&change.reason, MAX_REASON_CHARS);
            change.certificate = change.certificate.take().map(|it| cleaned(&it, MAX_NAME_CHARS));
        }
        self
    }

    pub(super) fn switches_nothing(&self) -> bool {
        self.limits.is_empty() && matches!(self.everything, Switch::Policy | Switch::Enforce)
    }

    pub(super) fn note(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }
}

/// Returns the text on one line, without control characters, bidirectional controls and invisible
/// characters.
fn cleaned(text: &str, most: usize) -> String {
    let is_text = |char: &char| !is_unprintable(*char);
    let cleaned: String = text.trim().chars().filter(is_text).take(most).collect();
    cleaned.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_text_is_cleaned_to_one_line() {
        for (written, kept) in [
            (" ann ", "ann"),
            ("a\x1b[31mb\r\nc\0", "a[31mbc"),
            ("safe\u{202e}gnp.exe", "safegnp.exe"),
            ("\u{feff}x\u{200b}y", "xy"),
            ("übergröße <b>", "übergröße <b>"),
        ] {
            assert_eq!(cleaned(written, 100), kept, "{written:?}");
        }
        assert_eq!(cleaned(&"é".repeat(500), MAX_NAME_CHARS).chars().count(), MAX_NAME_CHARS);
    }
}
