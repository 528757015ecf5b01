//! Parses keys of descriptors that operators type: values, entries, or the whole key as it is shown.
//!
//! Invariant: text without the entries of its limit yields no key. The key would belong to no caller.

use crate::descriptor::EntryPattern;
use crate::limit::Limit;
use crate::source::KeySource;

impl Limit {
    /// Returns the number of leading words that form the key, where other words may follow.
    ///
    /// A key of all entries of a descriptor is one word as it is shown (`plan=gold, user=ann`), one for each
    /// entry (`plan=gold`, `user=ann`), or one for each entry whose value is open.
    pub fn key_words(&self, words: &[&str]) -> usize {
        match self.by() {
            [KeySource::Global] => 0,
            [KeySource::Descriptor] => {
                let keys = self.entry_keys();
                let begins = |(word, key): (&&str, &&str)| named(word, key).is_some();
                match words {
                    [all, ..] if as_shown(all, &keys).is_some() => 1,
                    words if words.len() >= keys.len() && words.iter().zip(&keys).all(begins) => keys.len(),
                    _ => match self.descriptor() {
                        Some(pattern) => pattern.entries().iter().filter(|entry| entry.is_open()).count(),
                        None => keys.len(),
                    },
                }
            }
            by => by.len(),
        }
    }

    /// Returns the keys of the entries of its descriptors, as far as they are known.
    pub fn entry_keys(&self) -> Vec<&str> {
        match (self.descriptor(), self.envoy_match()) {
            (Some(pattern), _) => pattern.entries().iter().map(EntryPattern::key).collect(),
            (None, Some(envoy_match)) => envoy_match.keys().collect(),
            (None, None) => Vec::new(),
        }
    }
}

/// Returns the entries of a descriptor of this limit from typed values.
pub(crate) fn entries<'a>(limit: &'a Limit, values: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    let keys = limit.entry_keys();
    let shown = match values {
        [all] => as_shown(all, &keys),
        _ => None,
    };
    let values = shown.as_deref().unwrap_or(values);
    if let Some(pattern) = limit.descriptor() {
        return pattern.typed(values);
    }
    if values.len() != keys.len() {
        return None;
    }
    let entry = |(key, value): (&'a str, &&'a str)| match &shown {
        Some(_) => Some((key, *value)),
        None => named(value, key).map(|value| (key, value)),
    };
    keys.iter().copied().zip(values).map(entry).collect()
}

/// Returns the value of an entry that is written with its key.
fn named<'v>(text: &'v str, key: &str) -> Option<&'v str> {
    text.strip_prefix(key)?.strip_prefix('=')
}

/// Returns the values of several entries that are written as one text, as a key is shown.
fn as_shown<'v>(text: &'v str, keys: &[&str]) -> Option<Vec<&'v str>> {
    let (first, others) = keys.split_first().filter(|(_, others)| !others.is_empty())?;
    let mut rest = named(text, first)?;
    let mut values = Vec::with_capacity(keys.len());
    for key in others {
        let (value, after) = rest.split_once(&format!(", {key}="))?;
        values.push(value);
        rest = after;
    }
    values.push(rest);
    Some(values)
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Bucket, Rate};

    use crate::{Key, KeySource, LimitBuilder, Policy};

    #[test]
    fn a_limit_of_envoy_files_takes_only_keys_with_its_own_entries() {
        let limit = LimitBuilder::new("shop.plan_gold.user")
            .envoy_match("shop", [("plan", Some("gold")), ("user", None)])
            .by(KeySource::Descriptor)
            .quota(Bucket::new(Rate::per_minute(5)).unwrap());
        let policy = Policy::of([limit]).unwrap();
        let limit = &policy.limits()[0];
        let ann = Key::of_entries([("plan", "gold"), ("user", "ann")]);
        for (typed, words) in [(&["plan=gold", "user=ann"][..], 2), (&["plan=gold, user=ann"], 1)] {
            assert_eq!(policy.key(limit, typed).as_ref(), Some(&ann), "{typed:?}");
            assert_eq!(limit.key_words(&[typed, &["7"]].concat()), words, "{typed:?}");
        }
        // Each of these would be a key that belongs to no caller.
        for wrong in
            [&["ann"][..], &["plan=gold"], &["user=ann"], &["user=ann", "plan=gold"], &["gold", "ann"], &[]]
        {
            assert_eq!(policy.key(limit, wrong), None, "{wrong:?}");
        }
    }
}
