//! Envoy rate limit descriptors: a domain, and entries of a key and a value.
//!
//! - `glob`: patterns with `*`.
//! - `index`: finds the limits that cover a descriptor among many thousands.
//!
//! The transport is in `tollgate_rls`, Envoy's own configuration files are in `tollgate_envoy`.

mod glob;
pub(crate) mod index;

use std::fmt;
use std::net::IpAddr;

use tollgate_document::{Mistake, short};

use crate::redact::{begun, is_secret_word};
pub use glob::Glob;

/// The maximum number of entries of a pattern. It bounds keys, which hold all entries.
pub(crate) const MAX_ENTRIES: usize = 16;
/// The maximum length of an entry's key and of a domain, in bytes.
pub(crate) const MAX_WORD_BYTES: usize = 256;
/// The maximum length of a value in a pattern, in bytes.
const MAX_VALUE_BYTES: usize = 1_024;
/// The domain whose descriptors describe requests and are matched against limits on paths.
pub(crate) const RESERVED_DOMAIN: &str = "tollgate";

/// A domain and the entries of one descriptor, in the order in which they arrived.
///
/// ```
/// # use tollgate_policy::Descriptor;
/// let descriptor = Descriptor::new("edge", &[("plan", "gold"), ("user", "ann")]);
/// assert_eq!(descriptor.value("user"), Some("ann"));
/// assert_eq!(descriptor.value("path"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The domain. Two proxies may use the same key for different things.
    pub domain: &'a str,
    /// Keys and their values.
    pub entries: &'a [(&'a str, &'a str)],
    /// The cost, if the caller overrides the policy. Zero checks without charging.
    pub cost: Option<u64>,
}

impl<'a> Descriptor<'a> {
    /// Creates a descriptor whose cost is that of the limits.
    pub const fn new(domain: &'a str, entries: &'a [(&'a str, &'a str)]) -> Self {
        Self { domain, entries, cost: None }
    }

    /// Returns the client address from the entry that Envoy calls `remote_address`, if present.
    pub fn client(&self) -> Option<IpAddr> {
        self.value("remote_address")?.parse().ok()
    }

    /// Returns the value of the first entry with this key.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }
}

/// The descriptors that a limit covers: those with exactly these entries, in this order.
///
/// ```
/// # use tollgate_policy::Policy;
/// let policy = Policy::parse("limits: [{descriptor: [plan=gold, user], bucket: 10/minute}]")?;
/// let pattern = policy.limits()[0].descriptor().expect("the limit has one");
/// assert!(pattern.covers(&[("plan", "gold"), ("user", "ann")]));
/// assert!(!pattern.covers(&[("plan", "gold")]));
/// assert!(!pattern.covers(&[("user", "ann"), ("plan", "gold")]));
/// assert_eq!(pattern.to_string(), "plan=gold, user");
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DescriptorPattern(Vec<EntryPattern>);

/// One entry of a [`DescriptorPattern`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryPattern {
    key: Box<str>,
    value: ValuePattern,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ValuePattern {
    /// Any value.
    Any,
    /// This value only.
    Exact(Box<str>),
    /// Values that fit a pattern with `*`.
    Like(Glob),
}

impl DescriptorPattern {
    /// Creates a pattern from at least one entry.
    pub(crate) fn new(entries: Vec<EntryPattern>) -> Self {
        Self(entries)
    }

    /// Returns the entries in order.
    pub fn entries(&self) -> &[EntryPattern] {
        &self.0
    }

    /// Whether the pattern covers a descriptor with these entries.
    pub fn covers(&self, entries: &[(&str, &str)]) -> bool {
        let fits = |(wanted, (key, value)): (&EntryPattern, &(&str, &str))| {
            *wanted.key == **key && wanted.fits(value)
        };
        self.0.len() == entries.len() && self.0.iter().zip(entries).all(fits)
    }

    /// Returns the number of entries with this key.
    pub(crate) fn count(&self, key: &str) -> usize {
        self.0.iter().filter(|entry| *entry.key == *key).count()
    }

    /// Returns the entries of a descriptor from values that an operator typed: one for each entry,
    /// or one for each open entry. A value may be written as it is shown, `user=ann`.
    pub(crate) fn typed<'a>(&'a self, values: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
        let open = self.0.iter().filter(|entry| entry.is_open()).count();
        let only_open = values.len() == open && open < self.0.len();
        if !only_open && values.len() != self.0.len() {
            return None;
        }
        let mut values = values.iter();
        let mut entries = Vec::with_capacity(self.0.len());
        for entry in &self.0 {
            let value = match &entry.value {
                ValuePattern::Exact(value) if only_open => value,
                _ => {
                    let typed = *values.next()?;
                    let bare = typed.strip_prefix(&*entry.key).and_then(|rest| rest.strip_prefix('='));
                    bare.unwrap_or(typed)
                }
            };
            if !entry.fits(value) {
                return None;
            }
            entries.push((&*entry.key, value));
        }
        Some(entries)
    }
}

/// Formats the pattern in the syntax of the policy file: `plan=gold, user`.
impl fmt::Display for DescriptorPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            entry.fmt(f)?;
        }
        Ok(())
    }
}

impl EntryPattern {
    /// Returns the key of the entry.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether more than one value fits.
    pub const fn is_open(&self) -> bool {
        !matches!(self.value, ValuePattern::Exact(_))
    }

    /// Whether a value fits.
    pub fn fits(&self, value: &str) -> bool {
        match &self.value {
            ValuePattern::Any => true,
            ValuePattern::Exact(wanted) => **wanted == *value,
            ValuePattern::Like(glob) => glob.fits(value),
        }
    }

    /// Whether the key suggests that the value is a credential.
    pub(crate) fn is_secret(&self) -> bool {
        is_secret_word(self.key.as_bytes())
    }

    /// Returns the value as written; `None` if any value fits.
    pub(crate) fn written(&self) -> Option<String> {
        match &self.value {
            ValuePattern::Any => None,
            ValuePattern::Exact(value) => Some(value.to_string()),
            ValuePattern::Like(glob) => Some(glob.to_string()),
        }
    }

    /// Parses `user`, `plan=gold` or `path=/v1/*`.
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        if key.trim() != key || value.is_some_and(|value| value.trim() != value) {
            let meant = value.map(|value| format!("={}", value.trim())).unwrap_or_default();
            return Err(Mistake::new("an entry has no blanks around its words")
                .meant(format!("{}{meant}", short(key.trim())))
                .help("an entry is a key, or a key and a value: plan=gold"));
        }
        if key.is_empty() {
            return Err(Mistake::new(format!("the entry `{}` has no key", short(text)))
                .label("the key precedes the `=`")
                .help("an entry is a key, or a key and a value: plan=gold"));
        }
        if key.contains('*') {
            return Err(Mistake::new("the key of an entry has no wildcards")
                .at(0..key.len())
                .label("only values have wildcards: path=/v1/*"));
        }
        if let Some(at) = text.find(char::is_control) {
            return Err(Mistake::new("an entry has no control characters")
                .at(at..at + text[at..].chars().next().map_or(1, char::len_utf8))
                .label("remove this"));
        }
        if key.len() > MAX_WORD_BYTES || value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(Mistake::new("this entry is too long")
                .label(format!("at most {MAX_WORD_BYTES} bytes of key, and {MAX_VALUE_BYTES} of value")));
        }
        let value = match value {
            None => ValuePattern::Any,
            Some("") => {
                return Err(Mistake::new(format!("the entry `{}` has no value", short(key)))
                    .label("the value behind the `=` is missing")
                    .help(format!("for any value, write `{}` alone", short(key))));
            }
            Some(value) if value.bytes().all(|byte| byte == b'*') => ValuePattern::Any,
            Some(value) => match Glob::parse(value) {
                Some(glob) => ValuePattern::Like(glob),
                None => ValuePattern::Exact(value.into()),
            },
        };
        Ok(Self { key: key.into(), value })
    }
}

/// Formats the entry in the syntax of the policy file. Credentials are shortened.
impl fmt::Display for EntryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match self.written() {
            None => Ok(()),
            Some(value) if self.is_secret() => write!(f, "={}", begun(&value)),
            Some(value) => write!(f, "={value}"),
        }
    }
}

/// Parses the domain of a limit.
pub(crate) fn domain(text: &str) -> Result<Box<str>, Mistake> {
    if text == RESERVED_DOMAIN {
        return Err(Mistake::new("limits on paths apply to descriptors of the domain `tollgate`")
            .label("reserved: limits on descriptors do not apply there")
            .help("there a descriptor describes a request, by `path`, `ip`, `user` and so on: limit it by `endpoint`, without `descriptor`"));
    }
    if matches!(text, "*" | "any" | "all") {
        return Err(Mistake::new(format!("`{text}` is not a domain")).label("omit `domain` for all domains"));
    }
    if text.contains('*') {
        return Err(Mistake::new("a domain has no wildcards").label("several domains are a list"));
    }
    if text.trim() != text || text.len() > MAX_WORD_BYTES || text.chars().any(char::is_control) {
        return Err(Mistake::new(format!("`{}` cannot be a domain", short(text)))
            .label(format!("at most {MAX_WORD_BYTES} bytes, without blanks around them")));
    }
    Ok(text.into())
}
