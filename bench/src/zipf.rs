//! Random choice of keys.
//!
//! Zipf distribution with exponent 0.99, the skew of web caches and of YCSB: of a million keys, the first gets 6.5 %
//! of the requests, and half of all requests go to about two thousand keys. Ranks are shuffled, so neighbors in the
//! stream are not neighbors in a table.
//!
//! The seed is fixed: every run has the same keys.

/// Draws numbers below `keys` with a Zipf distribution.
pub struct Zipf {
    /// Cumulative weights by rank.
    sums: Vec<f64>,
    /// Keys by rank.
    keys: Vec<usize>,
    rng: Rng,
}

impl Zipf {
    const EXPONENT: f64 = 0.99;

    /// Creates the distribution over this many keys.
    #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^52")]
    pub fn new(keys: usize) -> Self {
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| (rank as f64).powf(-Self::EXPONENT));
        let sums = weights.map(|weight| {
            sum += weight;
            sum
        });
        let sums = sums.collect();
        let mut rng = Rng::new();
        let mut shuffled: Vec<usize> = (0..keys).collect();
        for last in (1..keys).rev() {
            shuffled.swap(last, rng.below(last + 1));
        }
        Self { sums, keys: shuffled, rng }
    }
}

impl Iterator for Zipf {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.rng.fraction() * self.sums.last()?;
        let rank = self.sums.partition_point(|sum| *sum < at);
        self.keys.get(rank.min(self.keys.len() - 1)).copied()
    }
}

/// `splitmix64` with a fixed seed: sufficient for choosing keys, and reproducible.
pub struct Rng(u64);

impl Rng {
    /// Creates the generator with the fixed seed.
    #[allow(clippy::new_without_default, reason = "a seed is not a default")]
    pub const fn new() -> Self {
        Self(0x7011_6a7e)
    }

    /// Creates a generator with another seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(mixed(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number below `bound`.
    #[allow(clippy::cast_possible_truncation, reason = "below `bound`, which is a `usize`")]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns a number in `[0, 1)`.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are what a fraction has")]
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number with an exponential distribution and a mean of one.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.fraction()).ln()
    }
}

/// The finalizer of `splitmix64`: it maps different numbers to different numbers.
pub const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_gets_its_share() {
        let zipf = Zipf::new(1_000);
        let first = zipf.keys[0];
        let share = zipf.take(100_000).filter(|key| *key == first).count();
        // 1 / (sum of rank^-0.99 over 1,000 ranks) is 12.9 %.
        assert!((12_400..13_400).contains(&share), "{share} of 100,000");
    }
}
