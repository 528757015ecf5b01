//! The coverage of a limit that requests are not matched against, for display.
//!
//! The crate that creates such a limit also looks it up.

use std::fmt;

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
    domain: Box<str>,
    keys: Vec<Box<str>>,
    entries: Vec<Box<str>>,
}

impl EnvoyMatch {
    pub(crate) fn new<'e>(
        domain: &str,
        entries: impl IntoIterator<Item = (&'e str, Option<&'e str>)>,
    ) -> Self {
        let entry = |(key, value): (&str, Option<&str>)| match value {
            None => printable(key),
            Some(value) if is_secret_word(key.as_bytes()) => printable(&format!("{key}={}", begun(value))),
            Some(value) => printable(&format!("{key}={value}")),
        };
        let (keys, entries) = entries.into_iter().map(|it| (Box::from(it.0), entry(it))).unzip();
        Self { domain: printable(domain), keys, entries }
    }

    /// Returns the domain of the descriptors.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the keys of the entries, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &**key)
    }

    /// Returns the entries in the syntax of a policy: `plan=gold`, or `user` for any value.
    /// Credentials are shortened.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &**entry)
    }
}

impl fmt::Display for EnvoyMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.domain, self.entries.join(", "))
    }
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
