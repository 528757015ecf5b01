//! Limits whose numbers come with each call, as redis-cell's and throttlecrab's do.
//!
//! A caller names a key and says how much it may spend: so many in so long, so many at once. Those numbers
//! become a [`Rule`] that stands in no policy. All such rules share their states: what a key has spent counts
//! under whatever numbers it is asked for next, as in redis-cell, which keeps one arrival time for each key.
//! (Rates whose units are not a whole number of microseconds apart keep their fraction, and that is filed
//! apart: 7 a minute and 10 a minute do not see each other, 6 and 10 do.)
//!
//! Not here: how a protocol words the answer. Each rounds in its own way.

use std::sync::Arc;

use tollgate_core::{Adjustment, Bucket, Outcome, Quota, QuotaError, Rate, Rule, Span, Verdict};
use tollgate_policy::{Key, Mode};
use tollgate_store::{Store, StoreError};

use crate::decision::Decision;
use crate::limiter::Limiter;

/// What such limits are called in records.
const THROTTLE_NAME: &str = "throttle";
/// How many different numbers are remembered as rules.
const MAX_CACHED_RULES: usize = 16;

/// The numbers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Throttle {
    /// How many a rested key may spend at once.
    pub capacity: u64,
    /// How many come back in a period.
    pub count: u64,
    /// The period.
    pub period: Span,
}

impl Throttle {
    /// The rule of these numbers, if they can be served.
    ///
    /// ```
    /// # use tollgate::{QuotaError, Span};
    /// # use tollgate::throttle::Throttle;
    /// let one = Throttle { capacity: 16, count: 30, period: Span::from_secs(60) };
    /// let other = Throttle { capacity: 5, ..one };
    /// assert_eq!(one.rule()?.id, other.rule()?.id);        // a key spends from both
    /// assert_eq!(Throttle { count: 0, ..one }.rule(), Err(QuotaError::ZeroRate));
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn rule(&self) -> Result<Rule, QuotaError> {
        let bucket = Bucket::new(Rate::new(self.count, self.period))?.with_burst(self.capacity)?;
        Ok(Rule::new(THROTTLE_NAME, bucket.shared()))
    }
}

/// The last rules that were asked for: a caller asks for the same few again and again.
#[derive(Debug, Default)]
pub struct ThrottleRules {
    kept: Vec<(Throttle, Arc<Rule>)>,
    /// The last one found, and the next to give way.
    last: usize,
    oldest: usize,
}

impl ThrottleRules {
    /// The rule of these numbers, if they can be served.
    #[inline]
    pub fn rule(&mut self, throttle: Throttle) -> Result<&Arc<Rule>, QuotaError> {
        let is_last = self.kept.get(self.last).is_some_and(|(numbers, _)| *numbers == throttle);
        if !is_last {
            self.last = self.find(throttle)?;
        }
        Ok(&self.kept[self.last].1)
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

/// What is answered to such a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleReply {
    /// Whether it may go ahead.
    pub allowed: bool,
    /// How many a rested key may spend at once.
    pub limit: u64,
    /// How many the key may still spend, rounded down.
    pub remaining: u64,
    /// How long to wait; `None` for what is allowed, and where waiting does not help.
    pub retry_after: Option<Span>,
    /// When the key would have as much as was asked for, if keys could have more than their limit:
    /// what [`retry_after`](Self::retry_after) is, and a time also where that says never.
    pub short_by: Span,
    /// How long until the key is as good as never seen.
    pub reset_after: Span,
}

impl ThrottleReply {
    fn of(decision: &Decision<'_>, rule: &Rule, quantity: u64) -> Self {
        let allowed = decision.is_allowed();
        if let Some(counted) = decision.limits().next() {
            let throttled = Self::counted(*counted.outcome(), allowed, rule, quantity);
            let is_look = quantity == 0 && counted.limit().mode() == Mode::Enforce;
            return if is_look { throttled.looked_at(counted.rule()) } else { throttled };
        }
        // Switched off, or the store gave no answer and nobody counted.
        let limit = rule.quota.capacity();
        let wait = decision.advised_wait();
        Self {
            allowed,
            limit,
            remaining: if allowed { limit.saturating_sub(quantity) } else { 0 },
            retry_after: wait,
            short_by: wait.unwrap_or(Span::ZERO),
            reset_after: wait.unwrap_or(Span::ZERO),
        }
    }

    fn counted(outcome: Outcome, allowed: bool, rule: &Rule, quantity: u64) -> Self {
        let limit = rule.quota.capacity();
        let Outcome { remaining, reset_after, .. } = outcome;
        let retry_after = if allowed { None } else { outcome.retry_after() };
        let short_by = match outcome.verdict {
            _ if allowed => Span::ZERO,
            Verdict::Never => reset_after + worth(rule, quantity.saturating_sub(limit)),
            _ => retry_after.unwrap_or(Span::ZERO),
        };
        Self { allowed, limit, remaining, retry_after, short_by, reset_after }
    }
}

impl ThrottleReply {
    /// Whoever asks for nothing is limited, too, where a key has spent more than these numbers ever grant:
    /// under others, before.
    fn looked_at(mut self, rule: &Rule) -> Self {
        let all = worth(rule, rule.quota.capacity());
        if self.allowed && self.reset_after > all {
            let wait = Span::from_micros(self.reset_after.as_micros() - all.as_micros());
            (self.allowed, self.retry_after, self.short_by) = (false, Some(wait), wait);
        }
        self
    }
}

/// The time that so many units take to come back, rounded up.
fn worth(rule: &Rule, units: u64) -> Span {
    let Quota::Bucket(bucket) = &rule.quota else { return Span::ZERO };
    let grains = u128::from(units) * u128::from(bucket.grains_per_unit());
    let ticks = grains.div_ceil(u128::from(bucket.grains_per_tick()));
    Span::from_micros(u64::try_from(ticks).unwrap_or(u64::MAX))
}

impl<S: Store> Limiter<S> {
    /// Answers a call without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`throttle`](Self::throttle) is to be asked. Zero units only look.
    #[inline]
    pub fn try_throttle(&self, rule: &Rule, key: Key, quantity: u64) -> Option<ThrottleReply> {
        self.try_decide_rule(rule, key, quantity, |decision| ThrottleReply::of(decision, rule, quantity))
    }

    /// Answers a call.
    ///
    /// ```
    /// # use tollgate::{Limiter, Span};
    /// # use tollgate::policy::Key;
    /// # use tollgate::throttle::Throttle;
    /// # pollster::block_on(async {
    /// let limiter = Limiter::from_policy("limits: []").unwrap();
    /// let rule = Throttle { capacity: 2, count: 30, period: Span::from_secs(60) }.rule().unwrap();
    /// assert_eq!(limiter.throttle(&rule, Key::named(b"ann"), 2).await.remaining, 0);
    /// let refused = limiter.throttle(&rule, Key::named(b"ann"), 1).await;
    /// assert!(!refused.allowed && refused.retry_after.is_some());
    /// # });
    /// ```
    pub async fn throttle(&self, rule: &Rule, key: Key, quantity: u64) -> ThrottleReply {
        let decision = self.decide_rule(rule, key, quantity).await;
        ThrottleReply::of(&decision, rule, quantity)
    }

    /// Gives a key so many units back, up to its limit, and says how it stands then.
    pub async fn throttle_refund(
        &self,
        rule: &Rule,
        key: &Key,
        units: u64,
    ) -> Result<ThrottleReply, StoreError> {
        let outcome = self.store().adjust(rule, key.as_bytes(), Adjustment::Grant { units }).await?;
        Ok(ThrottleReply::counted(outcome, true, rule, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_rules_are_kept_than_there_is_room_for() {
        let mut throttles = ThrottleRules::default();
        for round in 0..3 {
            for capacity in 1..100 {
                let throttle = Throttle { capacity, count: 30, period: Span::from_secs(60) };
                let rule = throttles.rule(throttle).unwrap();
                assert_eq!(rule.quota.capacity(), capacity, "round {round}");
            }
            assert_eq!(throttles.kept.len(), MAX_CACHED_RULES);
        }
        assert!(throttles.rule(Throttle { capacity: 1, count: 0, period: Span::from_secs(1) }).is_err());
        assert_eq!(throttles.kept.len(), MAX_CACHED_RULES);
    }
}
