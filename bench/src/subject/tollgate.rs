//! Tollgate's in-memory store, one check at a time.

use std::hint::black_box;

use tollgate_core::{Bucket, Rate, Rule, Span, Timestamp};
use tollgate_store::{Check, MemoryStore};

use super::{Offer, Subject};
use crate::stream::Text;

/// With the time of the request as an argument, as the limiter passes it.
pub struct Tollgate {
    store: MemoryStore,
    rule: Rule,
    now: Timestamp,
}

/// Returns the rule of an allowance.
pub fn rule(offer: Offer) -> Rule {
    let (period, burst) = offer.terms();
    let rate = Rate::new(1, Span::from_secs(period.as_secs()));
    let bucket = Bucket::new(rate).and_then(|bucket| bucket.with_burst(burst.into()));
    Rule::new("bench", bucket.expect("both offers can be served"))
}

impl Tollgate {
    /// Returns the store.
    pub const fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// Returns a check of one unit.
    #[inline(always)]
    pub fn check_of<'a>(&'a self, key: &'a str) -> Check<'a> {
        Check::new(&self.rule, key.as_bytes(), 1)
    }

    /// Decides a batch, and returns how many checks were admitted.
    #[inline(always)]
    pub fn take_many(&self, batch: &[Check<'_>]) -> usize {
        let mut admitted = 0;
        self.store.take_many(batch, self.now, |_, outcome| {
            admitted += usize::from(black_box(outcome).is_admitted());
        });
        admitted
    }
}

impl Subject for Tollgate {
    const NAME: &'static str = "tollgate";
    const REMARK: &'static str =
        "exact; answers limit, remaining, reset and retry-after; the time is handed in";
    type Keys = Text;

    fn new(offer: Offer, keys: usize) -> Self {
        let store = MemoryStore::new(keys);
        Self { now: store.now(), store, rule: rule(offer) }
    }

    #[inline(always)]
    fn check(&self, key: &str) -> bool {
        // The whole answer, so that the compiler cannot remove unused parts of it.
        black_box(self.store.take(&self.check_of(key), self.now)).is_admitted()
    }
}

/// Reads the clock at each check, as governor does.
pub struct TollgateWithClock(Tollgate);

impl Subject for TollgateWithClock {
    const NAME: &'static str = "tollgate-with-clock";
    const REMARK: &'static str = "reads its clock at each check, as governor and pingora-limits do";
    type Keys = Text;

    fn new(offer: Offer, keys: usize) -> Self {
        Self(Tollgate::new(offer, keys))
    }

    #[inline(always)]
    fn check(&self, key: &str) -> bool {
        let Tollgate { store, .. } = &self.0;
        black_box(store.take(&self.0.check_of(key), store.now())).is_admitted()
    }
}
