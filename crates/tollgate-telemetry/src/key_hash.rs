//! Keyed hashes by which tables of this process find allowances, callers and routes.
//!
//! Numbers and texts are hashed as they are. The `Hash` of a tuple would also hash lengths and discriminants, which takes
//! as long as the texts.

use std::hash::{BuildHasher, Hasher as _};

/// Returns the hash of a number and of texts, in this order. The hashers of this crate include the length of each text.
// Inlined: most arguments are short or constant.
#[inline(always)]
pub(crate) fn hash_parts<const N: usize>(hashes: &impl BuildHasher, number: u128, parts: [&[u8]; N]) -> u64 {
    let mut hasher = hashes.build_hasher();
    hasher.write_u128(number);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_border_between_two_texts_counts() {
        let hashes = foldhash::fast::RandomState::default();
        let (text, mut seen) = (b"a text of more than sixteen bytes", HashSet::new());
        for border in 0..=text.len() {
            let (one, other) = text.split_at(border);
            assert!(seen.insert(hash_parts(&hashes, 1, [one, other])), "{border}");
            assert!(seen.insert(hash_parts(&hashes, 2, [one, other])), "{border}");
            assert!(seen.insert(hash_parts(&hashes, 1, [one, other, b""])), "{border}");
        }
    }
}
