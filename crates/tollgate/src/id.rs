//! The id of a decision, which callers quote and operators look up.
//!
//! A counter goes through a permutation that is keyed with a random number of this process. The ids
//! of one process are unique, two processes collide with the probability of random numbers, and an
//! id reveals neither the number of decisions nor the next id.
//!
//! Threads take numbers from the counter in blocks, because all of them would otherwise write to one cache line for each
//! decision. A thread that uses several generators in turns takes a block at each turn.

use std::cell::Cell;
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
        let spread = |half: u64| {
            // Every four bits get a byte of their own, all eight at the same time.
            let bytes = (half | half << 16) & 0x0000_ffff_0000_ffff;
            let bytes = (bytes | bytes << 8) & 0x00ff_00ff_00ff_00ff;
            let bytes = (bytes | bytes << 4) & 0x0f0f_0f0f_0f0f_0f0f;
            // A letter is a byte to which 6 adds a bit of 16.
            let letters = (bytes + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
            bytes + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)
        };
        let [high, low] = [self.0 >> 32, self.0 & 0xffff_ffff].map(spread);
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
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
    /// Identifies the generator in this process.
    number: u64,
    /// The first number of the next block.
    next: AtomicU64,
}

/// The numbers that a thread takes at a time. It may leave a block unfinished: 2^58 blocks last.
const BLOCK: u64 = 64;

/// The numbers that a thread has taken from a generator and not used: those from `next` to the next multiple of
/// [`BLOCK`], none if `next` is one.
#[derive(Clone, Copy)]
struct Block {
    generator: u64,
    next: u64,
}

thread_local! {
    static UNUSED: Cell<Block> = const { Cell::new(Block { generator: 0, next: 0 }) };
}

impl Default for DecisionIds {
    fn default() -> Self {
        Self::new(Randomness::System, 0)
    }
}

impl DecisionIds {
    /// Creates a generator for one purpose: with a seed, two purposes have different ids.
    pub(crate) fn new(randomness: Randomness, purpose: u64) -> Self {
        static GENERATORS: AtomicU64 = AtomicU64::new(0);
        let key = randomness.hash_keys(purpose).hash_one(0u8);
        Self { key, number: GENERATORS.fetch_add(1, Ordering::Relaxed), next: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn next(&self) -> DecisionId {
        let unused = UNUSED.get();
        let is_mine = unused.generator == self.number && !unused.next.is_multiple_of(BLOCK);
        let next = if is_mine { unused.next } else { self.take_block() };
        UNUSED.set(Block { generator: self.number, next: next.wrapping_add(1) });
        DecisionId(permuted(next ^ self.key))
    }

    /// Takes a block, and returns its first number.
    #[cold]
    fn take_block(&self) -> u64 {
        // Relaxed: no other memory access is ordered by this counter.
        self.next.fetch_add(BLOCK, Ordering::Relaxed)
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
    fn threads_and_generators_in_turns_share_no_ids() {
        let generators = [0, 1].map(|purpose| DecisionIds::new(Randomness::Seed(7), purpose));
        let draw = || {
            let turns = (0..1_000).flat_map(|_| generators.iter().enumerate());
            turns.map(|(at, ids)| (at, ids.next())).collect::<Vec<_>>()
        };
        let drawn = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 8_000);
    }

    #[test]
    fn one_seed_gives_the_same_ids_again() {
        let draw = || {
            let ids = DecisionIds::new(Randomness::Seed(7), 0);
            (0..200).map(|_| ids.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "0", "+123456789abcdef", "0x00000000000000", "00000000000000000", "000000000000000g"]
        {
            assert_eq!(text.parse::<DecisionId>(), Err(ParseDecisionIdError), "{text}");
        }
    }
}
