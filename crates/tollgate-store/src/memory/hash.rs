//! Keyed hashes of keys, unpredictable from outside.
//!
//! Keys come from requests, so an attacker can choose them. With a known hash, an attacker could
//! target the place of a victim in the table. So every word of a key is combined with a secret
//! before it is multiplied with its neighbor and the product folded: the scheme of wyhash and its
//! descendants, with random secrets instead of published ones, so that no known input zeroes a
//! factor. Two words are folded at a time and the folds are independent, which keeps the latency
//! short: hashing is a third of a decision.
//!
//! The hashes are not stable: another process has other secrets, unless it continues from a snapshot.

use std::hash::{BuildHasher, RandomState};

use tollgate_core::RuleId;

/// Hashes a rule and a key.
#[derive(Clone, Debug)]
pub(super) struct KeyHasher {
    place: Secrets,
    identity: Secrets,
}

type Secrets = [u64; 5];

/// The bits of a place that are those of its rule: enough to tell 64 rules apart, and few enough
/// that the 42 bits left tell the keys of one rule apart.
pub(super) const RULE_BITS: u64 = 0x3f;

impl KeyHasher {
    /// Creates a hasher with secrets from the operating system.
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        Self::from(|word| random.hash_one(word))
    }

    /// Creates a hasher with secrets from `seed`, for reproducible tests.
    pub(super) fn seeded(seed: u64) -> Self {
        Self::from(|word| {
            fold(seed ^ 0x2d35_8dcc_aa6c_78a5, (2 * word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        })
    }

    fn from(secret: impl Fn(u64) -> u64) -> Self {
        let secrets = |first| std::array::from_fn(|index| secret(first + index as u64) | 1);
        Self { place: secrets(0), identity: secrets(100) }
    }

    /// Returns the secrets, to continue with the same hashes in another process.
    pub(super) fn secrets(&self) -> impl Iterator<Item = u64> {
        self.place.into_iter().chain(self.identity)
    }

    /// Creates a hasher with the secrets of another one.
    pub(super) fn from_secrets(secrets: [u64; 10]) -> Self {
        let half = |first: usize| std::array::from_fn(|index| secrets[first + index]);
        Self { place: half(0), identity: half(5) }
    }

    /// The hash that places a key. Its lowest bits are those of the rule, so that a table can
    /// tell keys of one rule from those of others without keeping the rule.
    #[inline(always)]
    pub(super) fn place(&self, rule: RuleId, key: &[u8]) -> u64 {
        hash(&self.place, rule, key) & !RULE_BITS | rule.0 & RULE_BITS
    }

    /// Returns a second, independent hash: both together identify a key whose bytes are not kept.
    pub(super) fn identity(&self, rule: RuleId, key: &[u8]) -> u64 {
        hash(&self.identity, rule, key)
    }
}

#[inline(always)]
fn hash(secrets: &Secrets, rule: RuleId, key: &[u8]) -> u64 {
    let [a, b, c, d, last] = *secrets;
    let (start, end) = match (key.first_chunk(), key.last_chunk()) {
        (Some(head), Some(tail)) if key.len() <= 32 => (pair(head, a, b), pair(tail, c, d)),
        (Some(_), Some(tail)) => (long(secrets, key), pair(tail, c, d)),
        _ => (fold(short(key, 0) ^ a, short(key, 8) ^ b), 0),
    };
    fold(start ^ end ^ rule.0, last ^ key.len() as u64)
}

/// Hashes all but the last 16 bytes of a key above 32 bytes: pairs of words in turn, each fold
/// mixed into the next. Remaining bytes are read together with those before.
#[inline]
fn long(secrets: &Secrets, key: &[u8]) -> u64 {
    let [a, b, c, d, _] = *secrets;
    let body = &key[..key.len() - 16];
    let (pairs, _) = body.as_chunks();
    let stirred = pairs.iter().fold(0, |so_far, it| pair(it, a ^ so_far, b));
    body.last_chunk().map_or(stirred, |it| pair(it, c ^ stirred, d))
}

/// Combines two words with their secrets, multiplies and folds.
#[inline(always)]
const fn pair(bytes: &[u8; 16], one: u64, two: u64) -> u64 {
    let words = u128::from_le_bytes(*bytes);
    fold(words as u64 ^ one, (words >> 64) as u64 ^ two)
}

/// Reads up to eight bytes from `at` on, of a key below 16 bytes.
#[inline]
fn short(key: &[u8], at: usize) -> u64 {
    let bytes = key.iter().skip(at).take(8);
    bytes.fold(1, |word, &byte| word << 8 | u64::from(byte))
}

/// Folds the halves of the product: every bit of either factor affects every bit.
#[inline(always)]
const fn fold(x: u64, y: u64) -> u64 {
    let product = x as u128 * y as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_of_many_similar_keys_collide() {
        let hasher = KeyHasher::seeded(7);
        let mut seen = HashSet::new();
        for length in 0..80 {
            for byte in 0..length {
                for bit in 0..8 {
                    let mut key = vec![b'a'; length];
                    key[byte] ^= 1 << bit;
                    assert!(seen.insert(hasher.place(RuleId(1), &key)), "{length} bytes, {byte}.{bit}");
                }
            }
            assert!(seen.insert(hasher.place(RuleId(1), &vec![b'a'; length])), "{length} bytes");
        }
    }

    #[test]
    fn low_and_high_bits_spread_evenly() {
        let hasher = KeyHasher::seeded(7);
        // Below are the bits of the rule.
        for shift in [6, 16, 32, 48, 58] {
            let mut counts = [0u32; 64];
            for n in 0..64_000u32 {
                let hash = hasher.place(RuleId(9), format!("user:{n}").as_bytes());
                counts[(hash >> shift & 63) as usize] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 850 && *most < 1_150, "bits from {shift}: {least} to {most} of 1000");
        }
    }

    #[test]
    fn equal_keys_hash_differently_under_other_rules_or_secrets() {
        let hasher = KeyHasher::seeded(7);
        assert_ne!(hasher.place(RuleId(1), b"key"), hasher.place(RuleId(2), b"key"));
        assert_ne!(hasher.place(RuleId(1), b"key"), hasher.identity(RuleId(1), b"key"));
        assert_ne!(hasher.place(RuleId(1), b"key"), KeyHasher::seeded(8).place(RuleId(1), b"key"));
        assert_ne!(
            KeyHasher::random().place(RuleId(1), b"key"),
            KeyHasher::random().place(RuleId(1), b"key")
        );
    }
}
