//! Limits that learn their number of slots from latency: `slots: adaptive`.
//!
//! Not here: the learning (`tollgate_overload`), counting requests in flight (`tollgate`).

use tollgate_core::Span;

/// The bounds of a learned number of slots, and the algorithm that learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveSlots {
    /// The least number of slots.
    pub min: u32,
    /// The largest number of slots.
    pub max: u32,
    /// The algorithm.
    pub algorithm: AdaptiveAlgorithm,
    /// How long a request is awaited after its caller disconnected.
    pub ttl: Span,
}

/// The algorithm that learns a number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdaptiveAlgorithm {
    /// Follows the ratio of the latency without waiting to the measured latency.
    #[default]
    Gradient,
    /// Additive increase, multiplicative decrease.
    Aimd,
    /// Keeps the estimated number of waiting requests between two bounds.
    Vegas,
}

impl AdaptiveAlgorithm {
    /// Returns the word of the policy file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gradient => "gradient",
            Self::Aimd => "aimd",
            Self::Vegas => "vegas",
        }
    }
}

/// The default time for which a request is awaited after its caller disconnected.
const DEFAULT_TTL: Span = Span::from_secs(60);

impl Default for AdaptiveSlots {
    fn default() -> Self {
        Self { min: 3, max: 1_000, algorithm: AdaptiveAlgorithm::default(), ttl: DEFAULT_TTL }
    }
}
