//! The redacted texts and tags of keys that were shown recently.
//!
//! Redacting a key takes longer than the rest of recording a refusal, and a flood of refusals repeats its keys. The
//! cache has a fixed size, is set-associative and replaces entries in turn. It belongs to one policy, because the
//! policy defines how keys are shown, and it keeps no key that is not redacted.
//!
//! A lookup allocates nothing, unless another thread uses the same set at that time.
//!
//! Redaction itself is in `tollgate_policy`.

use std::sync::{Mutex, TryLockError};

use crate::text::Text;

/// The bytes that are kept of a key. Only unusually long keys exceed this.
pub(crate) const MAX_KEY_BYTES: usize = 160;

/// The number of sets and the keys in each set.
const SETS: usize = 128;
const WAYS: usize = 4;

/// A key as the policy's `privacy` shows it, with its tag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShownKey {
    pub(crate) text: Text<MAX_KEY_BYTES>,
    /// Identifies the hidden part of the key.
    pub(crate) tag: u64,
}

impl ShownKey {
    /// Creates a key that `show` writes to the buffer, and whose tag it returns.
    pub(crate) fn new(buffer: &mut String, show: impl FnOnce(&mut String) -> u64) -> Self {
        buffer.clear();
        let tag = show(buffer);
        Self { text: Text::new(buffer), tag }
    }
}

/// The keys that were shown recently, by the hash of limit and key.
pub(crate) struct KeyCache(Box<[Mutex<Set>]>);

#[derive(Default)]
struct Set {
    /// Zero marks a free way.
    hashes: [u64; WAYS],
    keys: [ShownKey; WAYS],
    /// The way that is replaced next.
    next: usize,
    /// The buffer in which keys are redacted.
    buffer: String,
}

impl KeyCache {
    pub(crate) fn new() -> Self {
        Self((0..SETS).map(|_| Mutex::default()).collect())
    }

    /// Passes the key with this hash to `then`. `show` writes the redacted key to a buffer and returns its tag; it is
    /// called if the key is not in the cache.
    pub(crate) fn with<T>(
        &self,
        key_hash: u64,
        show: impl FnOnce(&mut String) -> u64,
        then: impl FnOnce(&ShownKey) -> T,
    ) -> T {
        // The middle bits, because other tables use the lower and the upper ones.
        let place = usize::try_from((key_hash >> 24) % SETS as u64).unwrap_or(0);
        let mut set = match self.0.get(place).map(Mutex::try_lock) {
            Some(Ok(set)) => set,
            Some(Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            Some(Err(TryLockError::WouldBlock)) | None => {
                return then(&ShownKey::new(&mut String::new(), show));
            }
        };
        let Set { hashes, keys, next, buffer } = &mut *set;
        // Zero marks a free way, so a hash of zero is replaced.
        let key_hash = key_hash.max(1);
        let way = hashes.iter().position(|&known| known == key_hash).unwrap_or_else(|| {
            let way = *next % WAYS;
            *next = way + 1;
            keys[way] = ShownKey::new(buffer, show);
            hashes[way] = key_hash;
            way
        });
        then(&keys[way])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cache: &KeyCache, key_hash: u64, text: &str) -> String {
        let show = |buffer: &mut String| {
            buffer.push_str(text);
            key_hash
        };
        cache.with(key_hash, show, |key| {
            assert_eq!(key.tag, key_hash);
            key.text.as_str().to_owned()
        })
    }

    #[test]
    fn a_key_is_shown_once_until_it_is_replaced() {
        let cache = KeyCache::new();
        // Keys of one set.
        let key_hash = |key: u64| key << 40 | 7;
        assert_eq!(shown(&cache, key_hash(1), "first"), "first");
        assert_eq!(shown(&cache, key_hash(1), "again"), "first");
        for key in 2..=5 {
            assert_eq!(shown(&cache, key_hash(key), "other"), "other");
        }
        assert_eq!(shown(&cache, key_hash(1), "after"), "after");
        assert_eq!(shown(&cache, key_hash(5), "after"), "other");
    }
}
