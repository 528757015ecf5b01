//! The outcome of one limit in a decision, and the iterator over them.

use std::time::Duration;

use tollgate_core::{Outcome, Quota, Rule, Span};
use tollgate_policy::{Check, Limit, Mode};

use crate::outage::Part;

/// The wait given to callers when the actual wait is unknown.
pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The outcome of one limit in a decision.
#[derive(Clone, Copy, Debug)]
pub struct LimitOutcome<'d> {
    check: &'d Check<'d>,
    rule: &'d Rule,
    outcome: &'d Outcome,
    line_wait: Option<Duration>,
}

/// The limits of a decision. A hand-written iterator, because every answer iterates several times
/// and few decisions are degraded.
#[derive(Clone)]
pub(super) struct Limits<'d> {
    pub(super) checks: &'d [Check<'d>],
    pub(super) outcomes: std::slice::Iter<'d, Outcome>,
    /// The checks that the outcomes belong to, if they are not all checks in order.
    pub(super) parts: Option<std::slice::Iter<'d, Part>>,
    pub(super) line_wait: Option<Duration>,
}

impl<'d> Iterator for Limits<'d> {
    type Item = LimitOutcome<'d>;

    #[inline]
    fn next(&mut self) -> Option<LimitOutcome<'d>> {
        let outcome = self.outcomes.next()?;
        if let Some(parts) = &mut self.parts {
            let part = parts.next()?;
            return Some(LimitOutcome {
                check: self.checks.get(part.check)?,
                rule: &part.share.local,
                outcome,
                line_wait: None,
            });
        }
        let (check, rest) = self.checks.split_first()?;
        self.checks = rest;
        Some(LimitOutcome::counted(check, outcome, self.line_wait))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.outcomes.size_hint()
    }

    /// The common case: tests for degradation once, not per limit.
    #[inline]
    fn fold<B, F: FnMut(B, LimitOutcome<'d>) -> B>(self, start: B, mut with: F) -> B {
        if self.parts.is_none() {
            let (each, line_wait) = (self.checks.iter().zip(self.outcomes), self.line_wait);
            return each.fold(start, |so_far, (check, outcome)| {
                with(so_far, LimitOutcome::counted(check, outcome, line_wait))
            });
        }
        let mut so_far = start;
        for limit in self {
            so_far = with(so_far, limit);
        }
        so_far
    }
}

impl ExactSizeIterator for Limits<'_> {}

/// Returns the wait to advise to callers for this outcome of a rule, as
/// [`LimitOutcome::advised_wait`] does, for callers that only peeked.
pub fn advised_wait(rule: &Rule, outcome: &Outcome) -> Option<Duration> {
    let wait = outcome.retry_after()?;
    Some(if matches!(rule.quota, Quota::Concurrency(_)) { DEFAULT_RETRY_AFTER } else { wait.into() })
}

/// Returns the time that a request would wait in the queue of a rule if it were admitted now, for
/// callers that only peeked. Zero for a rule without a queue.
pub fn expected_wait(rule: &Rule, outcome: &Outcome) -> Duration {
    match &rule.quota {
        Quota::Bucket(it) => it.wait_after(outcome.reset_after).into(),
        _ => Duration::ZERO,
    }
}

impl<'d> LimitOutcome<'d> {
    /// The outcome that the store gave for a check.
    #[inline]
    pub(super) const fn counted(
        check: &'d Check<'d>,
        outcome: &'d Outcome,
        line_wait: Option<Duration>,
    ) -> Self {
        Self { check, rule: check.rule, outcome, line_wait }
    }

    /// Returns the check.
    pub(crate) const fn check(&self) -> &'d Check<'d> {
        self.check
    }

    /// Returns the limit in the policy.
    pub const fn limit(&self) -> &'d Limit {
        self.check.limit
    }

    /// Returns the rule that was applied: that of the limit, of its plan or of its override. For a
    /// degraded decision, returns this node's share of that rule.
    pub const fn rule(&self) -> &'d Rule {
        self.rule
    }

    /// Returns the rule of the policy: either [`rule`](Self::rule) itself, or the rule it is a
    /// share of.
    pub const fn policy_rule(&self) -> &'d Rule {
        self.check.rule
    }

    /// Returns the wait to advise to callers for this limit, before jitter; `None` if it has room
    /// or waiting does not help.
    ///
    /// The time at which a slot becomes free is unknown. The end of its lease is the upper bound, a
    /// minute for most limits, and callers that waited until then would leave free slots unused:
    /// they are advised to return shortly.
    ///
    /// An overload ends when many requests have ended, not when one unit is free: a shedder advises a
    /// second or more.
    ///
    /// A line of requests that wait for a slot advises the time in which they are served.
    pub fn advised_wait(&self) -> Option<Duration> {
        if self.line_wait.is_some() {
            return self.line_wait;
        }
        let wait = advised_wait(self.rule, self.outcome)?;
        Some(if self.check.limit.is_shed() { wait.max(DEFAULT_RETRY_AFTER) } else { wait })
    }

    /// Returns the name of the rule: that of the limit, with the window if it has several.
    pub fn name(&self) -> &'d str {
        &self.check.rule.name
    }

    /// Returns the key that was counted.
    pub const fn key(&self) -> &'d tollgate_policy::Key {
        &self.check.key
    }

    /// Returns the index of the request that it belongs to, among the requests decided together.
    pub const fn part(&self) -> u32 {
        self.check.part
    }

    /// Returns the cost of the request.
    pub const fn cost(&self) -> u64 {
        self.check.cost
    }

    /// Returns the answer of the limit, with its exact numbers.
    pub const fn outcome(&self) -> &'d Outcome {
        self.outcome
    }

    /// Returns whether the limit had room for the request.
    pub const fn is_admitted(&self) -> bool {
        self.outcome.is_admitted()
    }

    /// Returns the number of units that the key may still spend at this instant, rounded down.
    pub const fn remaining(&self) -> u64 {
        self.outcome.remaining
    }

    /// Returns the time that the request waits in the queue of this limit before it starts. Zero if
    /// the limit has no queue or refused.
    pub fn wait(&self) -> Duration {
        self.outcome.wait().into()
    }

    /// Returns the wait after which the limit admits the same request if no other request spends.
    /// `None` if it has room or waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcome.retry_after().map(Duration::from)
    }

    /// Returns the time until the key is equivalent to a fresh one.
    pub fn reset_after(&self) -> Duration {
        self.outcome.reset_after.into()
    }

    /// Returns whether the used part of the allowance has reached the `soft` threshold of the
    /// limit. Only admitted requests count: a refusal is beyond the threshold.
    pub fn is_soft(&self) -> bool {
        let Outcome { limit, remaining, .. } = *self.outcome;
        self.check.limit.soft().is_some_and(|soft| {
            let spent = u128::from(limit.saturating_sub(remaining)) * 100;
            self.is_binding()
                && self.outcome.is_admitted()
                && spent >= u128::from(soft.at) * u128::from(limit)
        })
    }

    /// The sort key for how close a limit is to refusing, the closest first.
    pub(super) fn closeness(&self) -> (u64, std::cmp::Reverse<Span>) {
        (self.outcome.remaining, std::cmp::Reverse(self.outcome.reset_after))
    }

    /// Returns whether its refusal refuses the request.
    pub fn is_binding(&self) -> bool {
        self.check.limit.mode() != Mode::Shadow
    }
}
