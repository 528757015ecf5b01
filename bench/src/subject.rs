//! The measured libraries, one file each.
//!
//! A subject is set up as its documentation shows. Where there is a choice (key type, store, capacity), it has the
//! fastest one.

mod governor;
mod inline;
mod mutex_hashmap;
mod pingora;
mod throttlecrab;
mod tollgate;

use std::time::Duration;

pub use self::governor::{Governor, GovernorFrozenClock, GovernorInlineKeys};
pub use self::mutex_hashmap::MutexHashMap;
pub use self::pingora::{Pingora, PingoraDefault};
pub use self::throttlecrab::Throttlecrab;
pub use self::tollgate::{Tollgate, TollgateWithClock, rule};
use crate::stream::Stream;

/// A rate limiter as a benchmark sees it.
pub trait Subject: Sync + 'static {
    /// Name in the table.
    const NAME: &'static str;
    /// Remark for readers of the table.
    const REMARK: &'static str;
    /// Form of its keys.
    type Keys: Stream;

    /// Creates a limiter with this allowance for each of so many keys.
    fn new(offer: Offer, keys: usize) -> Self;

    /// Checks a request, on a limiter that threads share.
    fn check(&self, key: &<Self::Keys as Stream>::Key) -> bool;

    /// Checks a request, on a limiter that one thread owns.
    #[inline(always)]
    fn check_alone(&mut self, key: &<Self::Keys as Stream>::Key) -> bool {
        self.check(key)
    }
}

/// The allowance of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// One unit each [`AMPLE_PERIOD`] and [`AMPLE_BURST`] at once: no run exhausts it, and no key becomes idle enough
    /// to be dropped between two requests.
    Ample,
    /// One unit each [`SPENT_PERIOD`] and [`SPENT_BURST`] at once: exhausted before the run begins.
    Spent,
}

/// More units than any run requests.
pub const AMPLE_BURST: u32 = 30_000_000;
/// Longer than one pass over all keys.
pub const AMPLE_PERIOD: Duration = Duration::from_secs(4);
/// Longer than any run.
pub const SPENT_PERIOD: Duration = Duration::from_secs(3_600);
/// More than one: throttlecrab 0.4 drops a key with a burst of one immediately.
pub const SPENT_BURST: u32 = 2;

impl Offer {
    /// Returns the time to refill one unit, and the burst.
    pub const fn terms(self) -> (Duration, u32) {
        match self {
            Self::Ample => (AMPLE_PERIOD, AMPLE_BURST),
            Self::Spent => (SPENT_PERIOD, SPENT_BURST),
        }
    }
}

/// A generic operation on a subject type.
pub trait Visitor {
    /// Result of the operation.
    type Out;
    /// Runs the operation.
    fn visit<S: Subject>(self) -> Self::Out;
}

/// All subjects that limit by key, in the order of the table.
pub const ALL: [&str; 8] = [
    Tollgate::NAME,
    TollgateWithClock::NAME,
    Governor::NAME,
    GovernorInlineKeys::NAME,
    GovernorFrozenClock::NAME,
    Throttlecrab::NAME,
    Pingora::NAME,
    MutexHashMap::NAME,
];

/// Applies a visitor to the subject of this name.
pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
    Some(match name {
        Tollgate::NAME => visitor.visit::<Tollgate>(),
        TollgateWithClock::NAME => visitor.visit::<TollgateWithClock>(),
        Governor::NAME => visitor.visit::<Governor>(),
        GovernorInlineKeys::NAME => visitor.visit::<GovernorInlineKeys>(),
        GovernorFrozenClock::NAME => visitor.visit::<GovernorFrozenClock>(),
        Throttlecrab::NAME => visitor.visit::<Throttlecrab>(),
        Pingora::NAME => visitor.visit::<Pingora>(),
        PingoraDefault::NAME => visitor.visit::<PingoraDefault>(),
        MutexHashMap::NAME => visitor.visit::<MutexHashMap>(),
        _ => return None,
    })
}

/// Returns the remark of a subject.
pub fn remark(name: &str) -> &'static str {
    struct Remark;
    impl Visitor for Remark {
        type Out = &'static str;
        fn visit<S: Subject>(self) -> &'static str {
            S::REMARK
        }
    }
    visit(name, Remark).unwrap_or("")
}
