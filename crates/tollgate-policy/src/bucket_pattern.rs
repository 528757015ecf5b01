//! The buckets of a limit: entries that a proxy reports under a quota service.
//!
//! The division of such a limit over proxies is in `tollgate-rlqs`.

use std::fmt;

use crate::limit::Limit;
use crate::policy::Policy;

/// The buckets that a limit covers: a domain, and entries whose order does not matter.
///
/// ```
/// # use tollgate_policy::Policy;
/// let policy = Policy::parse(
///     r#"limits: [{name: search, rlqs: {domain: edge, bucket: {name: search, tenant: "*"}}, rate: 300/second}]"#,
/// )?;
/// let limit = |entries: &[(&str, &str)]| policy.match_bucket("edge", entries).map(|it| it.name());
/// assert_eq!(limit(&[("tenant", "acme"), ("name", "search")]), Some("search"));
/// assert_eq!(limit(&[("name", "search")]), None);
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPattern {
    pub(crate) domain: Box<str>,
    /// Ordered by key. `None` is any value.
    pub(crate) entries: Vec<(Box<str>, Option<Box<str>>)>,
}

impl BucketPattern {
    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the entries, ordered by key; `None` is any value.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.entries.iter().map(|(key, value)| (&**key, value.as_deref()))
    }

    /// Whether the limit covers a bucket with these entries. A bucket with further entries is another
    /// bucket. An entry with an empty value is not covered by `*`.
    pub fn covers(&self, domain: &str, entries: &[(&str, &str)]) -> bool {
        let has = |(key, value): (&str, Option<&str>)| {
            entries.iter().any(|(known, found)| {
                *known == key && value.map_or(!found.is_empty(), |value| value == *found)
            })
        };
        domain == &*self.domain && entries.len() == self.entries.len() && self.entries().all(has)
    }
}

impl fmt::Display for BucketPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.domain)?;
        for (at, (key, value)) in self.entries().enumerate() {
            write!(f, "{} {key}={}", if at > 0 { "," } else { "" }, value.unwrap_or("*"))?;
        }
        Ok(())
    }
}

impl Policy {
    /// Returns the limit of a bucket that a proxy reports: the first in the file that covers it, since
    /// a bucket has one assignment.
    pub fn match_bucket(&self, domain: &str, entries: &[(&str, &str)]) -> Option<&Limit> {
        let covers = |limit: &&Limit| limit.rlqs.as_ref().is_some_and(|it| it.covers(domain, entries));
        self.limits().iter().find(covers)
    }
}
