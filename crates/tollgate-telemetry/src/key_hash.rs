//! Keyed hashes by which tables of this process find allowances, callers and routes.
//!
//! Texts come from requests, so an attacker can choose them. With a known hash, an attacker could choose texts that share
//! a place with those of a victim. So every word is combined with a secret before it is multiplied with another word and
//! the product folded: the scheme of wyhash and foldhash.
//!
//! Every request hashes its caller and the key of each limit. Most texts have at most 48 bytes, and are hashed without a
//! loop or a call.
//!
//! Tables use different bits of a hash. All of its bits depend on all of the input.

// Words are truncated on purpose.
#![allow(clippy::cast_possible_truncation)]

use std::array;
use std::hash::{BuildHasher as _, RandomState};

/// The secret key of hashes.
pub(crate) struct HashKey([u64; 5]);

impl HashKey {
    /// Creates a key from random numbers of the operating system.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self(array::from_fn(|index| random.hash_one(index)))
    }

    /// Returns the hash of a number and of texts, in this order.
    #[inline(always)]
    pub(crate) fn hash<const N: usize>(&self, number: u128, parts: [&[u8]; N]) -> u64 {
        let [a, b, .., last] = self.0;
        let mut state = pair(number, a, b);
        for part in &parts {
            state = self.add(state, part);
        }
        fold(state, last)
    }

    /// Adds a text to a state.
    #[inline(always)]
    fn add(&self, state: u64, text: &[u8]) -> u64 {
        let [_, _, c, d, _] = self.0;
        // Overlapping words of texts with different lengths may be equal.
        let state = state.rotate_right(text.len() as u32);
        match (text.first_chunk(), text.last_chunk()) {
            (Some(head), Some(tail)) if text.len() <= 48 => {
                let (head, tail) = (u128::from_le_bytes(*head), u128::from_le_bytes(*tail));
                let ends = pair(head, state, c) ^ pair(tail, state.wrapping_add(c), d);
                match text.get(16..32).and_then(<[u8]>::first_chunk) {
                    Some(middle) if text.len() > 32 => {
                        ends ^ pair(u128::from_le_bytes(*middle), state.wrapping_add(d), c)
                    }
                    _ => ends,
                }
            }
            (Some(_), _) => self.add_long(state, text),
            _ => pair(u128::from_le_bytes(ends(text)), state, c),
        }
    }

    /// Adds a text of more than 48 bytes to a state.
    #[inline(never)]
    fn add_long(&self, state: u64, text: &[u8]) -> u64 {
        let [_, _, c, d, _] = self.0;
        let (blocks, _) = text.as_chunks();
        let state = blocks.iter().fold(state, |state, block| pair(u128::from_le_bytes(*block), state, c));
        text.last_chunk().map_or(state, |tail| pair(u128::from_le_bytes(*tail), state, d))
    }
}

/// Returns all bytes of a text of less than 16 bytes as one block: those at its start and those at its end, some of them
/// twice, and zeros.
#[inline(always)]
pub(crate) fn ends(text: &[u8]) -> [u8; 16] {
    let (low, high) = if let (Some(head), Some(tail)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
    } else if let (Some(head), Some(tail)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        (u32::from_le_bytes(*head).into(), u32::from_le_bytes(*tail).into())
    } else if let ([first, ..], [.., last]) = (text, text) {
        (u64::from(*first), u64::from(text[text.len() / 2]) << 8 | u64::from(*last))
    } else {
        (0, 0)
    };
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// Combines two words with secrets, multiplies and folds.
#[inline(always)]
const fn pair(words: u128, one: u64, two: u64) -> u64 {
    fold(words as u64 ^ one, (words >> 64) as u64 ^ two)
}

/// Folds the halves of the product: every bit of either factor affects every bit.
#[inline(always)]
const fn fold(one: u64, two: u64) -> u64 {
    let product = one as u128 * two as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_border_between_two_texts_counts() {
        let hashes = HashKey::random();
        let (text, mut seen) =
            (b"a text of more than thirty-two bytes, which is longer than most", HashSet::new());
        for border in 0..=text.len() {
            let (one, other) = text.split_at(border);
            assert!(seen.insert(hashes.hash(1, [one, other])), "{border}");
            assert!(seen.insert(hashes.hash(2, [one, other])), "{border}");
            assert!(seen.insert(hashes.hash(1, [one, other, b""])), "{border}");
        }
    }

    #[test]
    fn no_two_of_many_similar_texts_collide() {
        let hashes = HashKey::random();
        let mut seen = HashSet::new();
        for length in 0..100 {
            for (byte, bit) in (0..length).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
                let mut text = vec![b'a'; length];
                text[byte] ^= 1 << bit;
                assert!(seen.insert(hashes.hash(1, [&text])), "{length} bytes, {byte}.{bit}");
            }
            assert!(seen.insert(hashes.hash(1, [&vec![b'a'; length]])), "{length} bytes");
        }
    }

    #[test]
    fn all_bits_of_a_hash_spread_evenly() {
        let hashes = HashKey::random();
        for shift in [0, 6, 16, 24, 32, 48, 55, 58] {
            let mut counts = [0_u32; 64];
            for number in 0..64_000 {
                let hash = hashes.hash(9, [format!("user:{number}").as_bytes()]);
                counts[(hash >> shift & 63) as usize] += 1;
            }
            // Four standard deviations of 1,000 are 125, and there are 512 counts.
            assert!(counts.iter().all(|count| (800..1_200).contains(count)), "bits from {shift}: {counts:?}");
        }
    }

    #[test]
    fn another_key_has_other_hashes() {
        let [one, other] = [HashKey::random(), HashKey::random()].map(|hashes| hashes.hash(0, [b"key"]));
        assert_ne!(one, other);
    }
}
