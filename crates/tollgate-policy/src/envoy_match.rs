//! The coverage of a limit that requests are not matched against, for display.
//!
//! The crate that creates such a limit also looks it up.

use std::fmt;
use std::sync::Arc;

use crate::redact::{begun, is_secret_word};
use tollgate_document::sanitize;

/// The maximum number of characters of one entry that are shown.
const MAX_SHOWN_CHARS: usize = 200;

/// The descriptors that a limit from Envoy's files applies to, as text.
///
/// ```
/// # use tollgate_core::{Bucket, Rate};
/// # use tollgate_policy::{KeySource, LimitBuilder, Policy};
/// let limit = LimitBuilder::new("shop.plan_gold.user")
///     .envoy_match("shop", [("plan", Some("gold")), ("user", None)])
///     .by(KeySource::Descriptor)
///     .quota(Bucket::new(Rate::per_minute(600))?);
/// let policy = Policy::of([limit])?;
/// let envoy_match = policy.limits()[0].envoy_match().expect("the limit has an Envoy match");
/// assert_eq!(envoy_match.to_string(), "shop: plan=gold, user");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyMatch {
    domain: Arc<str>,
    entries: Box<[EnvoyMatchEntry]>,
}

/// An entry of the descriptors that a limit from Envoy's files applies to. Clones share their text, because
/// hundreds of limits may begin with the same entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyMatchEntry {
    key: Arc<str>,
    shown: Arc<str>,
}

impl EnvoyMatchEntry {
    /// Creates an entry; without a value, it matches any value. Credentials are shortened.
    pub fn new(key: &Arc<str>, value: Option<&str>) -> Self {
        let shown = match value {
            None if is_printable(key) => Arc::clone(key),
            None => printable(key).into(),
            Some(value) if is_secret_word(key.as_bytes()) => {
                printable(&format!("{key}={}", begun(value))).into()
            }
            Some(value) => {
                let text = format!("{key}={value}");
                if is_printable(&text) { text.into() } else { printable(&text).into() }
            }
        };
        Self { key: Arc::clone(key), shown }
    }
}

impl EnvoyMatch {
    pub(crate) fn new<'e>(
        domain: &str,
        entries: impl IntoIterator<Item = (&'e str, Option<&'e str>)>,
    ) -> Self {
        let entry = |(key, value): (&str, _)| EnvoyMatchEntry::new(&Arc::from(key), value);
        Self { domain: Self::shown_domain(domain), entries: entries.into_iter().map(entry).collect() }
    }

    /// Creates a match of a domain as [`shown_domain`](Self::shown_domain) returns it.
    pub fn of_entries(domain: &Arc<str>, entries: impl IntoIterator<Item = EnvoyMatchEntry>) -> Self {
        Self { domain: Arc::clone(domain), entries: entries.into_iter().collect() }
    }

    /// Returns a domain as it is shown: short, on one line.
    pub fn shown_domain(domain: &str) -> Arc<str> {
        if is_printable(domain) { domain.into() } else { printable(domain).into() }
    }

    /// Returns the domain of the descriptors.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the keys of the entries, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.key)
    }

    /// Returns the entries in the syntax of a policy: `plan=gold`, or `user` for any value.
    /// Credentials are shortened.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.shown)
    }
}

impl fmt::Display for EnvoyMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.domain)?;
        for (at, entry) in self.entries().enumerate() {
            write!(f, "{}{entry}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Whether [`printable`] would return the text as it is.
fn is_printable(text: &str) -> bool {
    text.len() <= MAX_SHOWN_CHARS && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

/// Escapes text to one line that a terminal can show.
fn printable(text: &str) -> Box<str> {
    let mut shown = String::new();
    for (at, char) in text.chars().enumerate() {
        if at == MAX_SHOWN_CHARS {
            shown.push_str("...");
            break;
        }
        // Writing to a string does not fail.
        let _never = sanitize::show(char, &mut shown);
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_entries_are_short_printable_and_redacted() {
        let long = "a".repeat(1_000);
        let entries =
            [("k", Some(long.as_str())), ("x\u{1b}[2J", None), ("api_key", Some("sk-live-51secret"))];
        let envoy_match = EnvoyMatch::new("shop\n", entries);
        let shown = envoy_match.to_string();
        assert!(shown.starts_with("shop\\n: k=aaa") && shown.len() < 300, "{shown}");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.contains("api_key=") && !shown.contains("51secret"), "{shown}");
    }
}
