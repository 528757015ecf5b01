//! Who switched what, and what is kept of it for the next start.
//!
//! What people write about themselves is cut and stripped of what is no text, so that it
//! can be shown in a terminal and kept in a file.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Actor;
use super::state::{Switch, Target};
use crate::access::Role;
use crate::status::date;

/// How many changes are remembered: the last.
pub const MAX_CHANGES: usize = 1_000;
/// The longest name of somebody, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 100;
/// The longest reason, in characters.
pub(crate) const MAX_REASON_CHARS: usize = 300;

/// What is kept for the next start: plain data, to be written wherever it is safe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedOverrides {
    /// What is said of everything.
    pub everything: Switch,
    /// The limits that are switched, by name. Those that the policy does not have wait.
    pub limits: BTreeMap<String, Switch>,
    /// Who switched what, the oldest first.
    pub changes: VecDeque<Change>,
}

/// One change: who switched what, when, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// When, as RFC 3339 has it.
    pub at: String,
    /// The limit; `None`: everything.
    pub limit: Option<String>,
    /// How it was switched before.
    pub from: Switch,
    /// How it was switched then.
    pub to: Switch,
    /// Why, in the words of whoever did it; may be empty.
    pub reason: String,
    /// Who, as they call themselves; may be empty.
    pub by: String,
    /// What they may do.
    pub role: Role,
    /// Where they were.
    pub peer: Option<IpAddr>,
    /// Whom the certificate names that they had shown: unlike `by`, this was checked.
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
            at: date(who.at).unwrap_or_default(),
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
    /// The same, within what is kept: a file may have been edited by hand.
    pub(super) fn bounded(mut self) -> Self {
        self.limits.retain(|_, switch| *switch != Switch::Policy);
        // One that was kept at the second attempt may stand there twice.
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

/// Text on one line: no control characters, and nothing that turns the direction of
/// writing or hides what follows.
fn cleaned(text: &str, most: usize) -> String {
    let is_text = |char: &char| !char.is_control() && !is_invisible(*char);
    let cleaned: String = text.trim().chars().filter(is_text).take(most).collect();
    cleaned.trim_end().to_owned()
}

const fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_text_on_one_line() {
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
