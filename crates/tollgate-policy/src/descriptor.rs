//! A request as Envoy describes it to a rate limit service: a domain, and words with values.
//!
//! Not here: how it travels (`tollgate_rls`), what Envoy's own files make of it (`tollgate_envoy`).

/// A domain, and the entries of one of its descriptors, in the order in which they came.
///
/// ```
/// # use tollgate_policy::Descriptor;
/// let descriptor = Descriptor { domain: "edge", entries: &[("plan", "gold"), ("user", "ann")] };
/// assert_eq!(descriptor.value("user"), Some("ann"));
/// assert_eq!(descriptor.value("path"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// Whose descriptors these are: two proxies may use one word for different things.
    pub domain: &'a str,
    /// Keys and their values.
    pub entries: &'a [(&'a str, &'a str)],
}

impl<'a> Descriptor<'a> {
    /// The value of the first entry with this key.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }
}
