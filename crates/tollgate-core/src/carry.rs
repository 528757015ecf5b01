//! What a key has spent when the rule that counts it is replaced.
//!
//! Two promises hold for every sequence of changes: together the rules admit no more
//! than the largest of them would have, and a raise makes no wait longer.
//!
//! A changed limit of a window needs nothing of this: the state stays as it is
//! ([`Quota::identity`]). All else is expressed anew, in units: where instants are known
//! they are kept, and a bucket keeps fractions of a unit. A bucket holds no more debt
//! than it can refill in its own time, so a lowered one would forget the rest, and a
//! raise after it would hand that out again. Therefore the replaced state stays where it
//! is, goes on being charged, and the next rule starts from the state that has spent most.
//!
//! Not here: finding the states and charging them, which is a store's business.
//! Held by `tollgate_store::conformance::reloading`, which every store runs.

use crate::algorithm::Overdraft;
use crate::amount::Adjustment;
use crate::quota::{Quota, State};
use crate::rule::Rule;
use crate::time::Timestamp;

impl Quota {
    /// The state a key has under this quota after it had `state` under `before`.
    ///
    /// What carries over is what was spent: whoever had used 60 of 100 has 940
    /// left of a new 1000, and nothing left of a new 50. Leases carry over as
    /// they are.
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
            // Steps of one length mean the same in however many parts.
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

    /// The state in which as much is available as in `state` under `before`, of which this
    /// quota is a raise.
    #[must_use]
    pub fn bound_by(&self, before: &Self, state: &State, now: Timestamp) -> State {
        let mut bound = self.carry_over(before, state, now);
        self.adjust(&mut bound, self.echo(self.capacity().saturating_sub(before.capacity())), now);
        bound
    }

    /// The charge of units that another rule has admitted.
    pub const fn echo(&self, units: u64) -> Adjustment {
        // A bucket in debt beyond its capacity would make a key wait for more than its own
        // fill time; windows end by themselves.
        let overdraft = if matches!(self, Self::Bucket(_)) { Overdraft::None } else { Overdraft::Unlimited };
        Adjustment::Charge { units, overdraft }
    }

    /// Whether this quota admits no less than `other` at any time, by the same algorithm.
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
    /// The state that a key starts from under this rule, after it left `past` under rules
    /// that this one has replaced, the latest first: the one that counted the key last, also
    /// if nothing is spent there. `None` if it left nothing.
    pub fn carry_over(&self, past: &[(&Quota, State)], now: Timestamp) -> Option<State> {
        let (latest, state) = past.first()?;
        let mut carried = self.quota.carry_over(latest, state, now);
        let most = past.iter().map(|(quota, state)| quota.used(state, now)).max().unwrap_or(0);
        let mut missing = most.saturating_sub(self.quota.used(&carried, now));
        if self.quota.is_raise_of(latest) {
            // What was available a moment ago still is.
            missing = missing.min(self.quota.capacity() - latest.capacity());
        }
        if missing > 0 && !matches!(self.quota, Quota::Concurrency(_)) {
            self.quota.adjust(&mut carried, self.quota.echo(missing), now);
        }
        Some(carried)
    }
}
