//! The decision of a limiter about a request.
//!
//! A decision lists every limit that applied, also when the request was allowed: a client that
//! knows its remaining units can slow down before it is refused.
//!
//! Waits are [`Duration`]s here: this is the edge of the library. The arithmetic inside uses
//! `tollgate_core::Span`, and [`LimitOutcome::outcome`] returns its exact numbers.
//!
//! Formatting for HTTP is in `tollgate_http`.

use std::time::Duration;

use tollgate_core::{Outcome, Owner, Quota, Rule, Span, Timestamp};
use tollgate_policy::{Block, Check, Checks, Limit, ListEntry, Matched, Mode};
use tollgate_store::Outcomes;

use crate::id::DecisionId;
use crate::outage::{FallbackOutcome, LocalDecision, Part, denies};
use crate::receipt::Receipt;

/// The wait given to callers when the actual wait is unknown.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The decision of a limiter about a request.
///
/// ```
/// # use tollgate::{Call, Fate, Limiter};
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 5/minute}]")?;
/// let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
/// assert!(matches!(decision.fate(), Fate::Admitted));
/// for limit in decision.limits() {
///     assert_eq!((limit.name(), limit.outcome().remaining), ("everything-by-ip", 4));
/// }
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "the request may proceed only if the decision allows it"]
pub struct Decision<'l> {
    fate: Fate<'l>,
    pub(crate) checks: Checks<'l>,
    pub(crate) outcomes: Outcomes,
    at: Option<Timestamp>,
    /// How far the wall clock is ahead of `at`, in microseconds.
    wall_ahead: i64,
    pub(crate) owner: Option<Owner>,
    /// The decision made without the store. Boxed, because it is rarely present.
    pub(crate) degraded: Option<Box<LocalDecision>>,
    /// The id, once an observer or a caller has seen it.
    pub(crate) id: Option<DecisionId>,
}

/// The reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'l> {
    /// Every limit that applied had room, or no limit applied.
    Admitted,
    /// At least one limit had no room. Nothing was charged, except limits that count refusals.
    Refused,
    /// Allow-listed: no limit was checked.
    AllowListed(&'l ListEntry),
    /// Deny-listed: no limit was checked.
    DenyListed(&'l ListEntry),
    /// Servers may resolve the path differently, and the policy refuses such paths: no limit was
    /// checked.
    AmbiguousPath,
    /// A limit blocks this key, this plan or a missing key without counting.
    Blocked(Block<'l>),
    /// The store gave no answer, and at least one limit refuses requests that it cannot count
    /// ([`Decision::uncountable`] names them). Nothing was charged.
    Uncountable,
}

/// The outcome of one limit in a decision.
#[derive(Clone, Copy, Debug)]
pub struct LimitOutcome<'d> {
    check: &'d Check<'d>,
    rule: &'d Rule,
    outcome: &'d Outcome,
}

impl<'l> Decision<'l> {
    /// Creates a decision without any checks, which admits.
    #[inline]
    pub(crate) fn undecided() -> Self {
        let (checks, outcomes) = (Checks::new(), Outcomes::new());
        Self {
            fate: Fate::Admitted,
            checks,
            outcomes,
            at: None,
            wall_ahead: 0,
            owner: None,
            degraded: None,
            id: None,
        }
    }

    /// Sets the outcomes of the store and derives the result from them.
    #[inline]
    pub(crate) fn count(&mut self, admitted: bool, at: Timestamp, wall_ahead: i64) {
        self.fate = if admitted { Fate::Admitted } else { Fate::Refused };
        (self.at, self.wall_ahead) = (Some(at), wall_ahead);
    }

    /// Sets the outcomes that this node decided because the store gave no answer.
    pub(crate) fn degrade(&mut self, found: FallbackOutcome, wall_ahead: i64) {
        self.wall_ahead = wall_ahead;
        self.fate = match found.admitted {
            None => Fate::Uncountable,
            Some(true) => Fate::Admitted,
            Some(false) => Fate::Refused,
        };
        self.outcomes = found.outcomes;
        self.at = (!self.outcomes.is_empty()).then_some(found.degraded.at);
        self.degraded = Some(Box::new(found.degraded));
    }

    /// Sets the result of a list or a block; no outcomes are shown.
    pub(crate) fn settle_uncounted(&mut self, matched: Matched<'l>) {
        self.fate = match matched {
            Matched::Applies => Fate::Admitted,
            Matched::Allowed(entry) => Fate::AllowListed(entry),
            Matched::Denied(entry) => Fate::DenyListed(entry),
            Matched::AmbiguousPath => Fate::AmbiguousPath,
            Matched::Blocked(block) => Fate::Blocked(block),
        };
        self.checks.clear();
        self.owner = None;
    }

    /// Returns the reason for the decision.
    pub const fn fate(&self) -> Fate<'l> {
        self.fate
    }

    /// Returns whether the request may proceed.
    pub const fn is_allowed(&self) -> bool {
        matches!(self.fate, Fate::Admitted | Fate::AllowListed(_))
    }

    /// Returns whether it was made on this node alone, by the limits' `on_outage`, because the
    /// store gave no answer.
    pub const fn is_degraded(&self) -> bool {
        self.degraded.is_some()
    }

    /// Returns the limits that refused because they could not count ([`Fate::Uncountable`]).
    pub fn uncountable(&self) -> impl Iterator<Item = &'l Limit> {
        let checks = if self.fate == Fate::Uncountable { &self.checks[..] } else { &[] };
        // Windows of one limit are adjacent.
        let mut last = None;
        checks.iter().map(|check| check.limit).filter(move |limit| {
            denies(limit) && last.replace(limit.name()).is_none_or(|name| name != limit.name())
        })
    }

    /// Returns the time by the store's clock, or `None` if nothing was counted.
    pub const fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// Returns the time by the wall clock, for dates in an answer. The store's own clock need not
    /// follow corrections of the wall clock while the process runs.
    pub fn wall_at(&self) -> Option<Timestamp> {
        self.at.map(|at| at.shifted(self.wall_ahead))
    }

    /// Returns the owner of the slots that this decision took, if it took any.
    pub const fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Returns a receipt to settle the charge after the decision is dropped, or `None` if nothing
    /// was charged.
    pub fn receipt(&self) -> Option<Receipt> {
        Receipt::of(self)
    }

    /// Returns every limit that was counted, window by window, in the order of the policy.
    ///
    /// For a degraded decision, these are the limits that this node counted, with the numbers of
    /// its share.
    #[inline]
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitOutcome<'_>> {
        Limits {
            checks: &self.checks,
            outcomes: self.outcomes.iter(),
            parts: self.degraded.as_ref().map(|degraded| degraded.parts.iter()),
        }
    }

    /// Whether [`limits`](Self::limits) may list one window of a limit several times: for requests
    /// that were decided together, for a path that servers interpret differently, and for a key with
    /// several different values.
    pub const fn repeats_limits(&self) -> bool {
        self.checks.repeats_limits()
    }

    /// Updates the remaining units from a later decision, by the same limits, about one of the
    /// requests that were decided together.
    pub fn follow(&mut self, part: u32, later: &Decision<'_>) {
        let of_part = self.checks.iter().zip(&mut self.outcomes).filter(|(check, _)| check.part == part);
        for ((_, outcome), later) in of_part.zip(&later.outcomes) {
            (outcome.remaining, outcome.reset_after) = (later.remaining, later.reset_after);
        }
    }

    /// Returns the blocks of limits in shadow mode: refusals that were not enforced.
    pub fn shadowed(&self) -> &[Block<'l>] {
        self.checks.shadowed()
    }

    /// Returns the limit that decides.
    ///
    /// For a refusal, it is the limit with the longest wait to advise
    /// ([`LimitOutcome::advised_wait`]): a lease that ends late does not outrank a limit with a
    /// longer actual wait. Otherwise it is the limit with the least remaining, since it refuses first.
    /// Limits in shadow mode are ignored.
    pub fn limiting(&self) -> Option<LimitOutcome<'_>> {
        // Tested once instead of per limit: every answer needs the limiting limit.
        if self.degraded.is_some() {
            return self.limiting_among(self.limits());
        }
        let counted = self.checks.iter().zip(&self.outcomes);
        self.limiting_among(counted.map(|(check, outcome)| LimitOutcome { check, rule: check.rule, outcome }))
    }

    #[inline]
    fn limiting_among<'d>(&self, limits: impl Iterator<Item = LimitOutcome<'d>>) -> Option<LimitOutcome<'d>> {
        let binding = limits.filter(LimitOutcome::is_binding);
        if self.fate == Fate::Refused {
            binding.filter(|it| !it.outcome.is_admitted()).max_by_key(|it| wait_order(it.advised_wait()))
        } else {
            binding.min_by_key(LimitOutcome::closeness)
        }
    }

    /// Returns the limit with the least remaining among those that `is_meant` selects. Limits in
    /// shadow mode are ignored.
    pub fn closest_among(&self, is_meant: impl Fn(&LimitOutcome<'_>) -> bool) -> Option<LimitOutcome<'_>> {
        let meant = self.limits().filter(|it| it.is_binding() && is_meant(it));
        meant.min_by_key(LimitOutcome::closeness)
    }

    /// Returns the time that an allowed request waits before it starts: the longest wait in the
    /// queues of its limits (`algorithm: leaky-queue`). Zero for a refusal, and for requests that
    /// start immediately. Limits in shadow mode are ignored.
    ///
    /// The place in the queue is taken: the caller starts the request after this time, in the order
    /// of the decisions, or [refunds](crate::Limiter::refund) it if it leaves before.
    pub fn wait(&self) -> Duration {
        if self.fate != Fate::Admitted {
            return Duration::ZERO;
        }
        let waits = self.limits().filter(LimitOutcome::is_binding).map(|it| it.outcome.wait());
        waits.max().unwrap_or_default().into()
    }

    /// Returns the wait to advise to callers, before jitter. `None` if the request is allowed or
    /// waiting does not help.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Call, Limiter};
    /// let limiter = Limiter::from_policy("limits: [{by: ip, slots: 1, ttl: 1m}]")?;
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// assert_eq!(limiter.check(&call).advised_wait(), None);
    /// let refused = limiter.check(&call);
    /// // A lease may last for a minute; most slots are released long before.
    /// assert_eq!(refused.advised_wait(), Some(Duration::from_secs(1)));
    /// assert!(refused.retry_after() > refused.advised_wait());
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn advised_wait(&self) -> Option<Duration> {
        match self.fate {
            Fate::Refused => self.limiting()?.advised_wait(),
            // The end of the outage is unknown, but the store is probed every second.
            Fate::Uncountable => Some(DEFAULT_RETRY_AFTER),
            _ => None,
        }
    }

    /// Returns the wait after which the same request can pass if no other request spends. `None` if
    /// the request is allowed or waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.fate != Fate::Refused {
            return None;
        }
        let refusing = self.limits().filter(|it| it.is_binding() && !it.outcome.is_admitted());
        refusing.map(|it| it.retry_after()).max_by_key(|wait| wait_order(*wait)).flatten()
    }
}

/// The sort key of a wait. A refusal without a wait, which never ends, is the longest.
fn wait_order(wait: Option<Duration>) -> (bool, Duration) {
    (wait.is_none(), wait.unwrap_or_default())
}

/// The limits of a decision. A hand-written iterator, because every answer iterates several times
/// and few decisions are degraded.
#[derive(Clone)]
struct Limits<'d> {
    checks: &'d [Check<'d>],
    outcomes: std::slice::Iter<'d, Outcome>,
    /// The checks that the outcomes belong to, if they are not all checks in order.
    parts: Option<std::slice::Iter<'d, Part>>,
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
            });
        }
        let (check, rest) = self.checks.split_first()?;
        self.checks = rest;
        Some(LimitOutcome { check, rule: check.rule, outcome })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.outcomes.size_hint()
    }

    /// The common case: tests for degradation once, not per limit.
    #[inline]
    fn fold<B, F: FnMut(B, LimitOutcome<'d>) -> B>(self, start: B, mut with: F) -> B {
        if self.parts.is_none() {
            let each = self.checks.iter().zip(self.outcomes);
            return each.fold(start, |so_far, (check, outcome)| {
                with(so_far, LimitOutcome { check, rule: check.rule, outcome })
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

impl<'d> LimitOutcome<'d> {
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
    pub fn advised_wait(&self) -> Option<Duration> {
        advised_wait(self.rule, self.outcome)
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
    fn closeness(&self) -> (u64, std::cmp::Reverse<Span>) {
        (self.outcome.remaining, std::cmp::Reverse(self.outcome.reset_after))
    }

    /// Returns whether its refusal refuses the request.
    pub fn is_binding(&self) -> bool {
        self.check.limit.mode() != Mode::Shadow
    }
}
