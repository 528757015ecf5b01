//! The id of a decision, which callers quote and operators look up.
//!
//! A counter goes through a permutation that is keyed with a random number of this process. The ids
//! of one process are unique, two processes collide with the probability of random numbers, and an
//! id reveals neither the number of decisions nor the next id.

use std::fmt;
use std::hash::BuildHasher as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::randomness::Randomness;

/// The id of a decision: sixteen hexadecimal digits.
///
/// ```
/// # use tollgate::DecisionId;
/// let id: DecisionId = "00c0ffee00c0ffee".parse().unwrap();
/// assert_eq!(id.to_string(), "00c0ffee00c0ffee");
/// assert!("c0ffee".parse::<DecisionId>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DecisionId(pub u64);

/// Error returned when a text is not a decision id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a decision is sixteen hexadecimal digits")]
pub struct ParseDecisionIdError;

impl DecisionId {
    /// Returns the digits as ASCII bytes.
    pub fn digits(self) -> [u8; 16] {
        let mut digits = [b'0'; 16];
        for (at, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(self.0 >> (60 - 4 * at) & 15) as usize];
        }
        digits
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for DecisionId {
    type Err = ParseDecisionIdError;

    fn from_str(text: &str) -> Result<Self, ParseDecisionIdError> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = if digits { u64::from_str_radix(text, 16).ok() } else { None };
        number.map(Self).ok_or(ParseDecisionIdError)
    }
}

/// Generates decision ids.
pub(crate) struct DecisionIds {
    key: u64,
    next: AtomicU64,
}

impl Default for DecisionIds {
    fn default() -> Self {
        Self::new(Randomness::System, 0)
    }
}

impl DecisionIds {
    /// Creates a generator for one purpose: with a seed, two purposes have different ids.
    pub(crate) fn new(randomness: Randomness, purpose: u64) -> Self {
        Self { key: randomness.hash_keys(purpose).hash_one(0u8), next: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> DecisionId {
        // Relaxed: no other memory access is ordered by this counter.
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        DecisionId(permuted(count ^ self.key))
    }
}

/// A bijection, so that no two numbers collide (the finalizer of `SplitMix64`).
const fn permuted(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn decision_ids_are_unique_and_parse_back() {
        let ids = DecisionIds::default();
        let mut seen = HashSet::new();
        for _ in 0..100_000 {
            let id = ids.next();
            assert!(seen.insert(id));
            assert_eq!(std::str::from_utf8(&id.digits()).unwrap(), id.to_string());
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "0", "+123456789abcdef", "0x00000000000000", "00000000000000000", "000000000000000g"]
        {
            assert_eq!(text.parse::<DecisionId>(), Err(ParseDecisionIdError), "{text}");
        }
    }
}
