//! governor 0.10, keyed, with its default store, hasher and clock.
//!
//! Its map stores the keys. A `String` key, the usual choice, adds a pointer, and with a million keys a cache miss
//! per check. The second row, `governor-inline-keys`, has a key type that stores 40 bytes inline, which is the
//! fastest we found for it.

use std::hint::black_box;
use std::num::NonZeroU32;

use ::governor::clock::{Clock, DefaultClock, FakeRelativeClock};
use ::governor::middleware::NoOpMiddleware;
use ::governor::state::keyed::DefaultKeyedStateStore;
use ::governor::{Quota, RateLimiter};

use super::inline::InlineKey;
use super::{Offer, Subject};

type Limiter<K, C = DefaultClock> =
    RateLimiter<K, DefaultKeyedStateStore<K>, C, NoOpMiddleware<<C as Clock>::Instant>>;

fn quota(offer: Offer) -> Quota {
    let (period, burst) = offer.terms();
    let quota = Quota::with_period(period).expect("no period is zero");
    quota.allow_burst(NonZeroU32::new(burst).expect("no burst is zero"))
}

/// With `String` keys, the usual choice.
pub struct Governor(Limiter<String>);

impl Subject for Governor {
    const NAME: &'static str = "governor";
    const REMARK: &'static str = "answers yes or no; `String` keys, as most programs use it";
    type Keys = Vec<String>;

    fn new(offer: Offer, _: usize) -> Self {
        Self(RateLimiter::keyed(quota(offer)))
    }

    #[inline(always)]
    fn check(&self, key: &String) -> bool {
        black_box(self.0.check_key(key)).is_ok()
    }
}

/// With inline keys.
pub struct GovernorInlineKeys(Limiter<InlineKey>);

impl Subject for GovernorInlineKeys {
    const NAME: &'static str = "governor-inline-keys";
    const REMARK: &'static str =
        "the same with keys of a type of our own, kept in its map in place: the fastest for it";
    type Keys = Vec<InlineKey>;

    fn new(offer: Offer, _: usize) -> Self {
        Self(RateLimiter::keyed(quota(offer)))
    }

    #[inline(always)]
    fn check(&self, key: &InlineKey) -> bool {
        black_box(self.0.check_key(key)).is_ok()
    }
}

/// With inline keys and a clock that costs nothing to read.
pub struct GovernorFrozenClock(Limiter<InlineKey, FakeRelativeClock>);

impl Subject for GovernorFrozenClock {
    const NAME: &'static str = "governor-frozen-clock";
    const REMARK: &'static str =
        "governor-inline-keys on its fake clock: what is left when reading the time costs nothing";
    type Keys = Vec<InlineKey>;

    fn new(offer: Offer, _: usize) -> Self {
        let clock = FakeRelativeClock::default();
        Self(RateLimiter::dashmap_with_clock(quota(offer), clock))
    }

    #[inline(always)]
    fn check(&self, key: &InlineKey) -> bool {
        black_box(self.0.check_key(key)).is_ok()
    }
}
