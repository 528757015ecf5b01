//! throttlecrab 0.4, the library: GCRA on a map of strings.
//!
//! It takes `&mut self`, so two threads need a lock, and one does not. Of its three stores, the periodic one does the
//! least per check; its capacity is set, and it does not sweep during a run.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ::throttlecrab::{PeriodicStore, RateLimiter};

use super::{Offer, Subject};
use crate::stopwatch;
use crate::stream::Text;

/// Behind a lock that a single owner need not take.
pub struct Throttlecrab {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    terms: Terms,
}

#[derive(Clone, Copy)]
struct Terms {
    burst: i64,
    period: i64,
    now: SystemTime,
}

impl Terms {
    #[inline(always)]
    fn check(self, limiter: &mut RateLimiter<PeriodicStore>, key: &str) -> bool {
        let answer = limiter.rate_limit(key, self.burst, 1, self.period, 1, self.now);
        matches!(black_box(answer), Ok((true, _)))
    }
}

impl Subject for Throttlecrab {
    const NAME: &'static str = "throttlecrab";
    const REMARK: &'static str = "answers limit, remaining, reset and retry-after; the time is handed in; two threads share it by a mutex";
    type Keys = Text;

    fn new(offer: Offer, keys: usize) -> Self {
        let day = Duration::from_secs(86_400);
        let store = PeriodicStore::builder().capacity(keys).cleanup_interval(day).build();
        let (period, burst) = offer.terms();
        let period = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
        let terms = Terms { burst: burst.into(), period, now: stopwatch::wall() };
        Self { limiter: Mutex::new(RateLimiter::new(store)), terms }
    }

    #[inline(always)]
    fn check(&self, key: &str) -> bool {
        self.terms.check(&mut self.limiter.lock().unwrap_or_else(PoisonError::into_inner), key)
    }

    #[inline(always)]
    fn check_alone(&mut self, key: &str) -> bool {
        self.terms.check(self.limiter.get_mut().unwrap_or_else(PoisonError::into_inner), key)
    }
}
