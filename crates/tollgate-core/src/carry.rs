//! Carries the usage of a key over when its rule is replaced.
//!
//! Two guarantees hold for every sequence of changes: together the rules admit no more than the
//! largest of them would have, and a raise makes no wait longer.
//!
//! A changed limit of a window needs no conversion: the state stays as it is ([`Quota::identity`]).
//! Other states are converted in units: known instants are kept, and a bucket keeps fractions of a
//! unit. A bucket holds no more debt than it can refill in its own fill time. A lowered bucket
//! would forget the rest, and a later raise would grant it again. Therefore the replaced state
//! stays where it is and continues to be charged, and the next rule starts from the state with the
//! highest usage.
//!
//! Finding the states and charging them is the job of a store. Tested by
//! `tollgate_store::conformance::reloading`, which every store runs.

use crate::algorithm::Overdraft;
use crate::amount::Adjustment;
use crate::quota::{Quota, State};
use crate::rule::Rule;
use crate::time::{Span, Timestamp};

impl Quota {
    /// Returns the state of a key under this quota after it had `state` under `before`.
    ///
    /// The used units carry over: a key that had used 60 of 100 has 940 left of a new 1000, and
    /// nothing left of a new 50. Leases carry over unchanged.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Amount, Quota, QuotaError, Rate, Timestamp};
    /// let now = Timestamp::from_secs(7);
    /// let before = Quota::from(Bucket::new(Rate::per_minute(100))?);
    /// let after = Quota::from(Bucket::new(Rate::per_minute(1000))?);
    /// let mut state = before.fresh();
    /// before.step(&mut state, Amount::Exactly(60), now);
    /// let mut state = after.carry_over(&before, &state, now);
    /// assert_eq!(after.step(&mut state, Amount::Exactly(0), now).remaining, 940);
    /// # Ok::<(), QuotaError>(())
    /// ```
    #[must_use]
    pub fn carry_over(&self, before: &Self, state: &State, now: Timestamp) -> State {
        match (self, before, state) {
            _ if self == before => state.clone(),
            (Self::Concurrency(_), Self::Concurrency(_), State::Concurrency(_)) => state.clone(),
            (Self::Concurrency(_), ..) | (_, Self::Concurrency(_), _) => self.fresh(),
            (Self::Bucket(it), Self::Bucket(before), State::Bucket(state)) => {
                State::Bucket(it.carry_over(before, *state, now))
            }
            (Self::FixedWindow(it), Self::FixedWindow(before), State::FixedWindow(state)) => {
                State::FixedWindow(it.carry_over(before, *state, now))
            }
            (Self::SlidingLog(it), Self::SlidingLog(_), State::SlidingLog(state)) => {
                State::SlidingLog(it.carry_over(state, now))
            }
            // Steps of one length have the same meaning for any number of parts.
            (Self::SlidingParts(it), Self::SlidingParts(before), State::SlidingParts(_))
                if it.rate().period == before.rate().period =>
            {
                state.clone()
            }
            _ => {
                let mut carried = self.fresh();
                self.adjust(&mut carried, self.echo(before.used(state, now)), now);
                carried
            }
        }
    }

    /// Returns the state in which as much is available as in `state` under `before`. This quota
    /// must be a raise of `before`.
    #[must_use]
    pub fn bound_by(&self, before: &Self, state: &State, now: Timestamp) -> State {
        if let (Self::Bucket(it), Self::Bucket(before), State::Bucket(state)) = (self, before, state) {
            return State::Bucket(it.bound_by(before, *state, now));
        }
        let mut bound = self.carry_over(before, state, now);
        self.adjust(&mut bound, self.echo(self.capacity().saturating_sub(before.capacity())), now);
        bound
    }

    /// Returns the charge for units that another rule has admitted.
    pub const fn echo(&self, units: u64) -> Adjustment {
        // A bucket in debt beyond its capacity would make a key wait longer than its own fill time;
        // windows end by themselves, and queues of any length share their states.
        let overdraft = match self {
            Self::Bucket(it) if it.queue().is_none() => Overdraft::None,
            _ => Overdraft::Unlimited,
        };
        Adjustment::Charge { units, overdraft }
    }

    /// Returns the charge for units that were leased under another rule, if this quota has `state`. A
    /// bucket charges the refill of two `ttl`s first, as a lease of its own does: the units may be spent
    /// until the end of the lease. Rounds up by less than a unit.
    pub fn echo_lease(&self, units: u64, ttl: Span, state: &State, now: Timestamp) -> Adjustment {
        let pad = match (self, state) {
            (Self::Bucket(it), State::Bucket(state)) => it.missing_pad(state, ttl, now),
            _ => 0,
        };
        self.echo(units.saturating_add(pad))
    }

    /// Returns whether this quota admits at least as much as `other` at any time, by the same
    /// algorithm.
    pub fn is_raise_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bucket(it), Self::Bucket(other)) => it.is_raise_of(other),
            _ => {
                self.algorithm() == other.algorithm()
                    && self.capacity() >= other.capacity()
                    && self.period() <= other.period()
            }
        }
    }
}

impl Rule {
    /// Returns the state that a key starts from under this rule. `past` holds its states under the
    /// replaced rules, the latest first: the first entry is the rule that counted the key last,
    /// even if nothing is spent there. Returns `None` if `past` is empty.
    pub fn carry_over(&self, past: &[(&Quota, State)], now: Timestamp) -> Option<State> {
        let (latest, state) = past.first()?;
        let mut carried = self.quota.carry_over(latest, state, now);
        let most = past.iter().map(|(quota, state)| quota.used(state, now)).max().unwrap_or(0);
        let mut missing = most.saturating_sub(self.quota.used(&carried, now));
        if self.quota.is_raise_of(latest) {
            // Units that were available a moment ago stay available.
            missing = missing.min(self.quota.capacity() - latest.capacity());
        }
        if missing > 0 && !matches!(self.quota, Quota::Concurrency(_)) {
            self.quota.adjust(&mut carried, self.quota.echo(missing), now);
        }
        if matches!(self.quota, Quota::Bucket(_)) {
            carried = self.with_fractions(carried, past, now);
        }
        Some(carried)
    }

    /// Returns the state of a bucket with at least the debt of each replaced bucket, to the fraction
    /// of a unit: whole units would forget nearly one of them.
    fn with_fractions(&self, carried: State, past: &[(&Quota, State)], now: Timestamp) -> State {
        let expiry = |state: &State| self.quota.expires_at(state);
        let buckets = past.iter().filter(|(quota, _)| matches!(quota, Quota::Bucket(_)));
        let converted = buckets.map(|(quota, state)| self.quota.carry_over(quota, state, now));
        let most = converted.fold(carried, |most, it| if expiry(&it) > expiry(&most) { it } else { most });
        match past.first() {
            Some((latest, state)) if self.quota.is_raise_of(latest) => {
                let bound = self.quota.bound_by(latest, state, now);
                if expiry(&bound) < expiry(&most) { bound } else { most }
            }
            _ => most,
        }
    }
}
