//! Concurrency: a number of slots, each held by a lease that expires.
//!
//! A counter that a crash fails to decrement stays too high forever. A lease has an owner, so a
//! late release cannot free the slot of another request. It has an expiry, so a crash frees its own
//! slot.
//!
//! A slot is held, not spent, so units do not apply and this type does not implement `Algorithm`.
//! [`Quota`](crate::Quota) joins the two.

use alloc::vec::Vec;

use crate::outcome::{Outcome, Verdict};
use crate::rate::{MAX_PERIOD, QuotaError};
use crate::time::{Span, Timestamp};

/// A concurrency limit: a number of slots, each leased for at most `ttl` unless renewed.
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

/// The holder of a slot, unique among all requests, such as a random number per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub u128);

/// A held slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The holder.
    pub owner: Owner,
    /// The time at which the lease ends unless it is released or renewed.
    pub expires: Timestamp,
}

/// All leases of one key, ordered by expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// The leases, earliest expiry first. No owner appears twice.
    pub held: Vec<Lease>,
}

/// Leases are kept in a list per key, so their number is bounded.
const MAX_SLOTS: u32 = 1 << 16;

impl Concurrency {
    /// Creates a limit of `slots` slots, each leased for `ttl`: a [`Span`] or a
    /// [`Duration`](std::time::Duration).
    pub fn new(slots: u32, ttl: impl Into<Span>) -> Result<Self, QuotaError> {
        match (slots, ttl.into()) {
            (0, _) => Err(QuotaError::ZeroBurst),
            (_, Span::ZERO) => Err(QuotaError::ZeroPeriod),
            (_, ttl) if ttl > MAX_PERIOD => Err(QuotaError::TooLong),
            (slots, _) if slots > MAX_SLOTS => Err(QuotaError::TooMany),
            (slots, ttl) => Ok(Self { slots, ttl }),
        }
    }

    /// Returns the number of slots.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the duration of a lease that is not renewed.
    pub const fn ttl(&self) -> Span {
        self.ttl
    }

    /// Acquires a slot, or renews the slot that `owner` holds.
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
            // Usually the first lease to expire; a later one if the number of slots was lowered
            // since.
            let next = leases.held.get(leases.held.len() - self.slots as usize);
            return Verdict::Refused {
                retry_after: next.map_or(Span::ZERO, |lease| lease.expires.since(now)),
            };
        }
        leases.held.drain(..lapsed);
        leases.held.retain(|lease| lease.owner != owner);
        leases.held.push(Lease { owner, expires: now + self.ttl });
        // After the clock stepped back, the newest lease need not be the last to expire.
        leases.held.sort_by_key(|lease| lease.expires);
        Verdict::admitted(1)
    }

    /// Frees the slot of `owner` if it still holds one. Idempotent.
    pub fn release(&self, leases: &mut Leases, owner: Owner) -> bool {
        let before = leases.held.len();
        leases.held.retain(|lease| lease.owner != owner);
        leases.held.len() < before
    }

    /// Frees the slots whose leases end first, at most `slots` of them. For callers that report the end
    /// of a request without saying of which.
    ///
    /// ```
    /// # use tollgate_core::{Concurrency, Leases, Owner, QuotaError, Span, Timestamp};
    /// let limit = Concurrency::new(2, Span::from_secs(30))?;
    /// let (mut leases, now) = (Leases::default(), Timestamp::from_secs(1_000));
    /// limit.acquire(&mut leases, Owner(1), now);
    /// limit.acquire(&mut leases, Owner(2), now + Span::from_secs(1));
    /// limit.release_oldest(&mut leases, 1, now + Span::from_secs(2));
    /// assert_eq!(leases.held[0].owner, Owner(2));
    /// limit.release_oldest(&mut leases, 5, now + Span::from_secs(2));
    /// assert!(leases.held.is_empty());
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn release_oldest(&self, leases: &mut Leases, slots: u64, now: Timestamp) {
        if slots == 0 {
            return;
        }
        self.pull_back(leases, now);
        leases.held.drain(..lapsed(leases, now));
        let freed = usize::try_from(slots).unwrap_or(usize::MAX).min(leases.held.len());
        leases.held.drain(..freed);
    }

    /// Starts the lease of `owner` again, if it still holds a slot. Returns whether it does: a lease
    /// that has ended is not restored, because another request may hold the slot by now.
    ///
    /// ```
    /// # use tollgate_core::{Concurrency, Leases, Owner, QuotaError, Span, Timestamp};
    /// let limit = Concurrency::new(1, Span::from_secs(30))?;
    /// let (mut leases, start) = (Leases::default(), Timestamp::from_secs(1_000));
    /// limit.acquire(&mut leases, Owner(1), start);
    /// assert!(limit.renew(&mut leases, Owner(1), start + Span::from_secs(20)));
    /// assert!(limit.renew(&mut leases, Owner(1), start + Span::from_secs(40)));
    /// assert!(!limit.renew(&mut leases, Owner(1), start + Span::from_secs(70)));
    /// assert!(!limit.renew(&mut leases, Owner(2), start + Span::from_secs(70)));
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn renew(&self, leases: &mut Leases, owner: Owner, now: Timestamp) -> bool {
        self.pull_back(leases, now);
        let lapsed = lapsed(leases, now);
        let Some(lease) = leases.held[lapsed..].iter_mut().find(|lease| lease.owner == owner) else {
            return false;
        };
        lease.expires = now + self.ttl;
        leases.held.sort_by_key(|lease| lease.expires);
        true
    }

    /// Completes a verdict given at `now` with the limit, the free slots and the reset time of the
    /// key.
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

    /// Returns the time at which the last lease ends.
    pub fn expires_at(&self, leases: &Leases) -> Timestamp {
        leases.held.last().map_or(Timestamp::EPOCH, |lease| lease.expires)
    }

    /// Returns the end of a lease. A lease further ahead than two TTLs comes from a clock that
    /// stepped back and counts as taken now.
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
    fn a_crashed_owner_loses_its_slot_and_a_late_release_frees_no_other_slot() {
        let limit = Concurrency::new(2, Span::from_secs(10)).unwrap();
        let mut leases = Leases::default();
        assert!(limit.acquire(&mut leases, Owner(1), at(0)).is_admitted());
        assert!(limit.acquire(&mut leases, Owner(2), at(1)).is_admitted());
        let refused = limit.acquire(&mut leases, Owner(3), at(2));
        assert_eq!(refused, Verdict::Refused { retry_after: Span::from_secs(8) });
        assert!(limit.acquire(&mut leases, Owner(3), at(10)).is_admitted(), "owner 1 crashed");
        assert!(!limit.release(&mut leases, Owner(1)), "another owner holds its slot now");
        assert!(!limit.acquire(&mut leases, Owner(4), at(10)).is_admitted());
    }

    #[test]
    fn renewal_takes_no_second_slot() {
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
