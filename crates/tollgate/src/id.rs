//! The name of a decision: what a caller quotes and an operator looks up.
//!
//! A count goes through a permutation that is keyed with a number of this
//! process: no two decisions of a process have one name, two processes share one
//! with the chance of two random numbers, and nobody can tell from a name how
//! many others there were or what the next one is called.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of a decision: sixteen hexadecimal digits.
///
/// ```
/// # use tollgate::DecisionId;
/// let id: DecisionId = "00c0ffee00c0ffee".parse().unwrap();
/// assert_eq!(id.to_string(), "00c0ffee00c0ffee");
/// assert!("c0ffee".parse::<DecisionId>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DecisionId(pub u64);

/// A text that is the name of no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a decision is sixteen hexadecimal digits")]
pub struct ParseDecisionIdError;

impl DecisionId {
    /// The digits, for those who write bytes.
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

/// Hands out names.
pub(crate) struct DecisionIds {
    key: u64,
    next: AtomicU64,
}

impl Default for DecisionIds {
    fn default() -> Self {
        Self { key: RandomState::new().hash_one(0u8), next: AtomicU64::new(0) }
    }
}

impl DecisionIds {
    pub(crate) fn next(&self) -> DecisionId {
        // Nothing else is ordered by this count.
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        DecisionId(permuted(count ^ self.key))
    }
}

/// Each step can be undone, so no two numbers become one (the finalizer of `SplitMix64`).
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
    fn no_two_decisions_have_one_name_and_every_name_reads_back() {
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
    fn nothing_else_is_a_name() {
        for text in ["", "0", "+123456789abcdef", "0x00000000000000", "00000000000000000", "000000000000000g"]
        {
            assert_eq!(text.parse::<DecisionId>(), Err(ParseDecisionIdError), "{text}");
        }
    }
}
