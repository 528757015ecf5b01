//! Limits whose numbers come with each call, as in redis-cell and throttlecrab.
//!
//! A caller passes a key with a capacity, a count and a period. Those numbers become a [`Rule`]
//! that is in no policy. All such rules share their states: the usage of a key counts under the
//! numbers of the next call, as in redis-cell, which keeps one arrival time per key. (Rates whose
//! units are not a whole number of microseconds apart keep their fraction, and have separate
//! states: 7 per minute and 10 per minute do not share usage, 6 and 10 do.)
//!
//! Formatting and rounding for a protocol is done by the protocol.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Bucket, Outcome, Quota, QuotaError, Rate, Rule, Span, Verdict};
use tollgate_policy::{Key, Mode};
use tollgate_store::{Store, StoreError};

use crate::decision::Decision;
use crate::limiter::{Limiter, Pending};

/// The name of such limits in records.
const THROTTLE_NAME: &str = "throttle";
/// The number of rules in a cache.
const MAX_CACHED_RULES: usize = 16;

/// The numbers of a throttle call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Throttle {
    /// The number of units that a rested key may spend in one step.
    pub capacity: u64,
    /// The number of units that come back in a period.
    pub count: u64,
    /// The period.
    pub period: Duration,
}

impl Throttle {
    /// Returns the rule with these numbers, or an error if they are invalid.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::QuotaError;
    /// # use tollgate::throttle::Throttle;
    /// let one = Throttle { capacity: 16, count: 30, period: Duration::from_secs(60) };
    /// let other = Throttle { capacity: 5, ..one };
    /// assert_eq!(one.rule()?.id, other.rule()?.id);        // a key spends from both
    /// assert_eq!(Throttle { count: 0, ..one }.rule(), Err(QuotaError::ZeroRate));
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn rule(&self) -> Result<Rule, QuotaError> {
        let bucket = Bucket::new(Rate::new(self.count, self.period.into()))?.with_burst(self.capacity)?;
        Ok(Rule::new(THROTTLE_NAME, bucket.shared()))
    }
}

/// A cache of recent rules, since callers repeat the same few numbers.
#[derive(Debug, Default)]
pub struct ThrottleRules {
    kept: Vec<(Throttle, Arc<Rule>)>,
    /// The index of the last hit; `oldest` is the index of the next entry to be replaced.
    last: usize,
    oldest: usize,
}

impl ThrottleRules {
    /// Returns the rule with these numbers, or an error if they are invalid.
    #[inline]
    pub fn rule(&mut self, throttle: Throttle) -> Result<&Arc<Rule>, QuotaError> {
        let is_last = self.kept.get(self.last).is_some_and(|(numbers, _)| *numbers == throttle);
        if !is_last {
            self.last = self.find(throttle)?;
        }
        Ok(&self.kept[self.last].1)
    }

    /// Returns the rule of the last call.
    #[inline]
    pub fn last(&self) -> Option<&Arc<Rule>> {
        self.kept.get(self.last).map(|(_, rule)| rule)
    }

    fn find(&mut self, throttle: Throttle) -> Result<usize, QuotaError> {
        if let Some(at) = self.kept.iter().position(|(numbers, _)| *numbers == throttle) {
            return Ok(at);
        }
        let entry = (throttle, Arc::new(throttle.rule()?));
        if self.kept.len() < MAX_CACHED_RULES {
            self.kept.push(entry);
            return Ok(self.kept.len() - 1);
        }
        let at = self.oldest;
        self.kept[at] = entry;
        self.oldest = (at + 1) % MAX_CACHED_RULES;
        Ok(at)
    }
}

/// The reply to a throttle call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the call may proceed only if it is allowed"]
#[non_exhaustive]
pub struct ThrottleReply {
    /// Whether the call may proceed.
    pub allowed: bool,
    /// The number of units that a rested key may spend in one step.
    pub limit: u64,
    /// The number of units that the key may still spend, rounded down.
    pub remaining: u64,
    /// The time to wait; `None` if the call is allowed or waiting does not help.
    pub retry_after: Option<Duration>,
    /// The time until the key would have the requested units if keys could exceed their limit:
    /// equal to [`retry_after`](Self::retry_after), but also set where waiting does not help.
    pub short_by: Duration,
    /// The time until the key is equivalent to a fresh one.
    pub reset_after: Duration,
}

impl ThrottleReply {
    /// Converts a decision by `rule` about `quantity` units.
    pub fn of(decision: &Decision<'_>, rule: &Rule, quantity: u64) -> Self {
        let allowed = decision.is_allowed();
        if let Some(counted) = decision.limits().next() {
            let throttled = Self::counted(*counted.outcome(), allowed, rule, quantity);
            let is_look = quantity == 0 && counted.limit().mode() == Mode::Enforce;
            return if is_look { throttled.refuse_overdrawn_read(counted.rule()) } else { throttled };
        }
        // The limit is off, or the store gave no answer and no limit counted.
        let limit = rule.quota.capacity();
        let wait = decision.advised_wait();
        Self {
            allowed,
            limit,
            remaining: if allowed { limit.saturating_sub(quantity) } else { 0 },
            retry_after: wait,
            short_by: wait.unwrap_or(Duration::ZERO),
            reset_after: wait.unwrap_or(Duration::ZERO),
        }
    }

    fn counted(outcome: Outcome, allowed: bool, rule: &Rule, quantity: u64) -> Self {
        let limit = rule.quota.capacity();
        let Outcome { remaining, reset_after, .. } = outcome;
        let retry_after = if allowed { None } else { outcome.retry_after().map(Duration::from) };
        let short_by = match outcome.verdict {
            _ if allowed => Duration::ZERO,
            Verdict::Never => (reset_after + worth(rule, quantity.saturating_sub(limit))).into(),
            _ => retry_after.unwrap_or(Duration::ZERO),
        };
        let reset_after = reset_after.into();
        Self { allowed, limit, remaining, retry_after, short_by, reset_after }
    }
}

impl ThrottleReply {
    /// Refuses a read if the key has spent more than these numbers ever grant, under other numbers
    /// before.
    fn refuse_overdrawn_read(mut self, rule: &Rule) -> Self {
        let all = Duration::from(worth(rule, rule.quota.capacity()));
        if self.allowed && self.reset_after > all {
            let wait = self.reset_after.saturating_sub(all);
            (self.allowed, self.retry_after, self.short_by) = (false, Some(wait), wait);
        }
        self
    }
}

/// Returns the time in which `units` units come back, rounded up.
fn worth(rule: &Rule, units: u64) -> Span {
    let Quota::Bucket(bucket) = &rule.quota else { return Span::ZERO };
    let grains = u128::from(units) * u128::from(bucket.grains_per_unit());
    let ticks = grains.div_ceil(u128::from(bucket.grains_per_tick()));
    Span::from_micros(u64::try_from(ticks).unwrap_or(u64::MAX))
}

impl<S: Store> Limiter<S> {
    /// Answers a throttle call without waiting, or returns the decision that waits for the store:
    /// pass it to [`ThrottleReply::of`]. Zero units are a read.
    #[inline]
    pub fn try_throttle<'l>(
        &'l self,
        rule: &'l Rule,
        key: Key,
        quantity: u64,
    ) -> Result<ThrottleReply, Pending<'l, S>> {
        self.try_decide_rule(rule, key, quantity, |decision| ThrottleReply::of(decision, rule, quantity))
    }

    /// Answers a throttle call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Limiter;
    /// # use tollgate::policy::Key;
    /// # use tollgate::throttle::Throttle;
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: []").unwrap();
    /// let rule = Throttle { capacity: 2, count: 30, period: Duration::from_secs(60) }.rule().unwrap();
    /// assert_eq!(limiter.throttle(&rule, Key::named(b"ann"), 2).await.remaining, 0);
    /// let refused = limiter.throttle(&rule, Key::named(b"ann"), 1).await;
    /// assert!(!refused.allowed && refused.retry_after.is_some());
    /// # });
    /// ```
    pub async fn throttle(&self, rule: &Rule, key: Key, quantity: u64) -> ThrottleReply {
        let decision = self.decide_rule(rule, key, quantity).await;
        ThrottleReply::of(&decision, rule, quantity)
    }

    /// Refunds units to a key, up to its limit, and returns its state after that, or `None` if the
    /// store gave no answer and [`reconcile`](Limiter::reconcile) applies the refund later.
    pub async fn throttle_refund(
        &self,
        rule: &Rule,
        key: &Key,
        units: u64,
    ) -> Result<Option<ThrottleReply>, StoreError> {
        let outcome = self.grant(self.policy().ad_hoc().name(), rule, key, units).await?;
        Ok(outcome.map(|outcome| ThrottleReply::counted(outcome, true, rule, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_cache_is_bounded() {
        let mut throttles = ThrottleRules::default();
        for round in 0..3 {
            for capacity in 1..100 {
                let throttle = Throttle { capacity, count: 30, period: Duration::from_secs(60) };
                let rule = throttles.rule(throttle).unwrap();
                assert_eq!(rule.quota.capacity(), capacity, "round {round}");
            }
            assert_eq!(throttles.kept.len(), MAX_CACHED_RULES);
        }
        assert!(throttles.rule(Throttle { capacity: 1, count: 0, period: Duration::from_secs(1) }).is_err());
        assert_eq!(throttles.kept.len(), MAX_CACHED_RULES);
    }

    #[test]
    fn the_last_rule_is_that_of_the_last_valid_call() {
        let mut throttles = ThrottleRules::default();
        assert!(throttles.last().is_none());
        for capacity in [3, 5, 3] {
            let throttle = Throttle { capacity, count: 30, period: Duration::from_secs(60) };
            assert!(throttles.rule(throttle).is_ok());
            assert_eq!(throttles.last().map(|rule| rule.quota.capacity()), Some(capacity));
        }
        assert!(throttles.rule(Throttle { capacity: 1, count: 0, period: Duration::from_secs(1) }).is_err());
        assert_eq!(throttles.last().map(|rule| rule.quota.capacity()), Some(3));
    }
}
