//! Concurrency: how many at once, each as a lease that ends by itself.
//!
//! A counter that a crash fails to decrement stays too high for ever. A lease
//! has an owner, so a late release frees nobody else's slot, and an expiry, so
//! a crash frees its own.
//!
//! Units make no sense here: a slot is held, not spent. So this is not an
//! `Algorithm`; it meets them in [`Quota`](crate::Quota).

use crate::outcome::{Outcome, Verdict};
use crate::rate::{MAX_PERIOD, QuotaError};
use crate::time::{Span, Timestamp};

/// So many holders at once, each for at most `ttl` unless renewed.
///
/// ```
/// # use tollgate_core::{Concurrency, Leases, Owner, QuotaError, Span, Timestamp};
/// let limit = Concurrency::new(1, Span::from_secs(30))?;
/// let (mut leases, now) = (Leases::default(), Timestamp::from_secs(1_000));
/// assert!(limit.acquire(&mut leases, Owner(1), now).is_admitted());
/// assert!(!limit.acquire(&mut leases, Owner(2), now).is_admitted());
/// limit.release(&mut leases, Owner(1));
/// assert!(limit.acquire(&mut leases, Owner(2), now).is_admitted());
/// # Ok::<(), QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    slots: u32,
    ttl: Span,
}

/// Who holds a slot: unique among all that may ask, such as a random number per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub u128);

/// A slot, held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// By whom.
    pub owner: Owner,
    /// Until when, if it is neither released nor renewed.
    pub expires: Timestamp,
}

/// All leases on one key, the first to expire first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// Ordered by expiry; no owner appears twice.
    pub held: Vec<Lease>,
}

/// Leases live in a list per key, so their number is bounded.
const MAX_SLOTS: u32 = 1 << 16;

impl Concurrency {
    /// So many slots, each leased for `ttl`.
    pub fn new(slots: u32, ttl: Span) -> Result<Self, QuotaError> {
        match (slots, ttl) {
            (0, _) => Err(QuotaError::ZeroBurst),
            (_, Span::ZERO) => Err(QuotaError::ZeroPeriod),
            (_, ttl) if ttl > MAX_PERIOD => Err(QuotaError::TooLong),
            (slots, _) if slots > MAX_SLOTS => Err(QuotaError::TooMany),
            (slots, ttl) => Ok(Self { slots, ttl }),
        }
    }

    /// How many may hold at once.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// How long a lease lasts unless renewed.
    pub const fn ttl(&self) -> Span {
        self.ttl
    }

    /// Takes a slot, or renews the one `owner` holds.
    ///
    /// ```
    /// # use tollgate_core::{Concurrency, Leases, Owner, QuotaError, Span, Timestamp, Verdict};
    /// # let limit = Concurrency::new(1, Span::from_secs(30))?;
    /// # let (mut leases, now) = (Leases::default(), Timestamp::from_secs(1_000));
    /// limit.acquire(&mut leases, Owner(1), now);
    /// let wait = Span::from_secs(30); // at most: the holder may release it sooner
    /// assert_eq!(limit.acquire(&mut leases, Owner(2), now), Verdict::Refused { retry_after: wait });
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn acquire(&self, leases: &mut Leases, owner: Owner, now: Timestamp) -> Verdict {
        self.pull_back(leases, now);
        let lapsed = lapsed(leases, now);
        let holds = leases.held[lapsed..].iter().any(|lease| lease.owner == owner);
        if !holds && leases.held.len() - lapsed >= self.slots as usize {
            // Usually the first to expire; a later one if slots have been taken away since.
            let next = leases.held.get(leases.held.len() - self.slots as usize);
            return Verdict::Refused {
                retry_after: next.map_or(Span::ZERO, |lease| lease.expires.since(now)),
            };
        }
        leases.held.drain(..lapsed);
        leases.held.retain(|lease| lease.owner != owner);
        leases.held.push(Lease { owner, expires: now + self.ttl });
        // Under a clock that stepped back, the newest lease need not be the last to expire.
        leases.held.sort_by_key(|lease| lease.expires);
        Verdict::admitted(1)
    }

    /// Frees the slot of `owner`, if it still holds one. Doing so twice does no harm.
    pub fn release(&self, leases: &mut Leases, owner: Owner) -> bool {
        let before = leases.held.len();
        leases.held.retain(|lease| lease.owner != owner);
        leases.held.len() < before
    }

    /// Words a verdict given at `now`, with how the key stands after it.
    pub fn describe(&self, leases: &Leases, verdict: Verdict, now: Timestamp) -> Outcome {
        let live = &leases.held[lapsed(leases, now)..];
        let held = u64::try_from(live.len()).unwrap_or(u64::MAX);
        Outcome {
            verdict,
            limit: u64::from(self.slots),
            remaining: u64::from(self.slots).saturating_sub(held),
            reset_after: live
                .iter()
                .map(|lease| self.ends(lease, now).since(now))
                .max()
                .unwrap_or(Span::ZERO),
        }
    }

    /// From when on nobody holds anything.
    pub fn expires_at(&self, leases: &Leases) -> Timestamp {
        leases.held.last().map_or(Timestamp::EPOCH, |lease| lease.expires)
    }

    /// A lease further ahead than two of its lives comes from a clock that
    /// stepped back: it counts as taken now.
    fn ends(&self, lease: &Lease, now: Timestamp) -> Timestamp {
        if lease.expires.since(now) > self.ttl + self.ttl { now + self.ttl } else { lease.expires }
    }

    fn pull_back(&self, leases: &mut Leases, now: Timestamp) {
        for lease in &mut leases.held {
            lease.expires = self.ends(lease, now);
        }
        leases.held.sort_by_key(|lease| lease.expires);
    }
}

fn lapsed(leases: &Leases, now: Timestamp) -> usize {
    leases.held.partition_point(|lease| lease.expires <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + second)
    }

    #[test]
    fn a_crash_leaks_nothing_and_a_late_release_frees_nobody_else() {
        let limit = Concurrency::new(2, Span::from_secs(10)).unwrap();
        let mut leases = Leases::default();
        assert!(limit.acquire(&mut leases, Owner(1), at(0)).is_admitted());
        assert!(limit.acquire(&mut leases, Owner(2), at(1)).is_admitted());
        let refused = limit.acquire(&mut leases, Owner(3), at(2));
        assert_eq!(refused, Verdict::Refused { retry_after: Span::from_secs(8) });
        assert!(limit.acquire(&mut leases, Owner(3), at(10)).is_admitted(), "owner 1 crashed");
        assert!(!limit.release(&mut leases, Owner(1)), "its slot is somebody else's now");
        assert!(!limit.acquire(&mut leases, Owner(4), at(10)).is_admitted());
    }

    #[test]
    fn renewing_takes_no_second_slot() {
        let limit = Concurrency::new(1, Span::from_secs(10)).unwrap();
        let mut leases = Leases::default();
        assert!(limit.acquire(&mut leases, Owner(1), at(0)).is_admitted());
        assert!(limit.acquire(&mut leases, Owner(1), at(9)).is_admitted());
        assert!(!limit.acquire(&mut leases, Owner(2), at(18)).is_admitted());
        assert!(limit.acquire(&mut leases, Owner(2), at(19)).is_admitted());
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let limit = Concurrency::new(1, Span::from_secs(10)).unwrap();
        let mut leases = Leases::default();
        limit.acquire(&mut leases, Owner(1), at(0));
        let before = leases.clone();
        limit.acquire(&mut leases, Owner(2), at(5));
        assert_eq!(leases, before);
    }
}
