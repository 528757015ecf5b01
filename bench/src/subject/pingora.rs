//! pingora-limits 0.9: estimates how often a key was seen, with a count-min sketch.
//!
//! A sketch stores no keys. It returns the smallest of four counters that the key shares with others, so it never
//! counts too little and often too much: keys that share all four counters are charged for each other.

use std::hint::black_box;
use std::time::Duration;

use pingora_limits::rate::Rate;

use super::{Offer, Subject};
use crate::stream::Text;

/// Number of hashes, the default.
const HASHES: usize = 4;
/// Interval of a counter, longer than a run.
const INTERVAL: Duration = Duration::from_secs(3_600);

fn limit(offer: Offer) -> isize {
    let (_, burst) = offer.terms();
    isize::try_from(burst).unwrap_or(isize::MAX)
}

/// With as many counters per hash as there are keys.
pub struct Pingora {
    rate: Rate,
    limit: isize,
}

impl Subject for Pingora {
    const NAME: &'static str = "pingora-limits";
    const REMARK: &'static str =
        "an approximate sketch: no key has a counter of its own; one counter to a key and hash";
    type Keys = Text;

    fn new(offer: Offer, keys: usize) -> Self {
        Self { rate: Rate::new_with_estimator_config(INTERVAL, HASHES, keys), limit: limit(offer) }
    }

    #[inline(always)]
    fn check(&self, key: &str) -> bool {
        black_box(self.rate.observe(&key, 1)) <= self.limit
    }
}

/// With the default of 1,024 counters per hash, for any number of keys.
pub struct PingoraDefault(Pingora);

impl Subject for PingoraDefault {
    const NAME: &'static str = "pingora-limits-1024";
    const REMARK: &'static str =
        "an approximate sketch at its default size: 1,024 counters to a hash, far too few for a million keys";
    type Keys = Text;

    fn new(offer: Offer, _: usize) -> Self {
        Self(Pingora { rate: Rate::new(INTERVAL), limit: limit(offer) })
    }

    #[inline(always)]
    fn check(&self, key: &str) -> bool {
        self.0.check(key)
    }
}
