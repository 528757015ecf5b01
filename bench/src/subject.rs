//! Who is measured: one file each, one trait.
//!
//! A subject is set up the way its own documentation shows, and where there is
//! a choice (key type, store, capacity), the way that is fastest for it.

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
    /// As it stands in the table.
    const NAME: &'static str;
    /// What a reader of the table must know.
    const REMARK: &'static str;
    /// How it takes its keys.
    type Keys: Stream;

    /// A limiter that makes this offer to each of so many keys.
    fn new(offer: Offer, keys: usize) -> Self;

    /// Whether a request may pass, on a limiter that threads share.
    fn check(&self, key: &<Self::Keys as Stream>::Key) -> bool;

    /// Whether a request may pass, on a limiter that one thread owns.
    #[inline(always)]
    fn check_alone(&mut self, key: &<Self::Keys as Stream>::Key) -> bool {
        self.check(key)
    }
}

/// What a limiter grants to each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// One each [`AMPLE_PERIOD`] and [`AMPLE_BURST`] at once: no run gets to its end, and
    /// no key is as good as forgotten between two requests.
    Ample,
    /// One each [`SPENT_PERIOD`] and [`SPENT_BURST`] at once: spent before the run begins.
    Spent,
}

/// More than any run asks for.
pub const AMPLE_BURST: u32 = 30_000_000;
/// Longer than it takes to come by all keys once.
pub const AMPLE_PERIOD: Duration = Duration::from_secs(4);
/// Longer than any run.
pub const SPENT_PERIOD: Duration = Duration::from_secs(3_600);
/// Not one: throttlecrab 0.4 forgets a key at once that may have one only.
pub const SPENT_BURST: u32 = 2;

impl Offer {
    /// How long one unit takes to come back, and how many there are at once.
    pub const fn terms(self) -> (Duration, u32) {
        match self {
            Self::Ample => (AMPLE_PERIOD, AMPLE_BURST),
            Self::Spent => (SPENT_PERIOD, SPENT_BURST),
        }
    }
}

/// Does something with the subject of a name.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Does it.
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

/// Finds a subject by its name.
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

/// What a reader must know about a subject.
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
