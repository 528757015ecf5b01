//! What a limiter answers about a request.
//!
//! Every limit that applied is in it, also when the request was allowed: a
//! client that can see what is left slows down before it is refused.
//!
//! Not here: wording it (`tollgate_http` for HTTP).

use tollgate_core::{Outcome, Owner, Quota, Rule, Span, Timestamp};
use tollgate_policy::{Block, Check, Checks, Limit, ListEntry, Matched, Mode};
use tollgate_store::Outcomes;

use crate::id::DecisionId;
use crate::outage::{FallbackOutcome, LocalDecision, Part, denies};
use crate::receipt::Receipt;

/// The wait that callers are told where nobody can put a time to it.
const DEFAULT_RETRY_AFTER: Span = Span::from_secs(1);

/// What a limiter answers about a request.
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
pub struct Decision<'l> {
    fate: Fate<'l>,
    pub(crate) checks: Checks<'l>,
    pub(crate) outcomes: Outcomes,
    at: Option<Timestamp>,
    /// How far the wall clock is ahead of `at`, in microseconds.
    wall_ahead: i64,
    pub(crate) owner: Option<Owner>,
    /// What was decided without the store. Boxed, since nearly never there.
    pub(crate) degraded: Option<Box<LocalDecision>>,
    /// Its name, once somebody was told of it.
    pub(crate) id: Option<DecisionId>,
}

/// How a decision came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'l> {
    /// Every limit that applied had room, or none applied.
    Admitted,
    /// At least one limit had no room. Nothing was charged, but for limits that count refusals.
    Refused,
    /// Allow-listed: no limit was looked at.
    AllowListed(&'l ListEntry),
    /// Deny-listed: no limit was looked at.
    DenyListed(&'l ListEntry),
    /// Servers may take the path for different places, and the policy says to refuse such: no
    /// limit was looked at.
    AmbiguousPath,
    /// A limit refuses this key, plan or lack of a key without counting.
    Blocked(Block<'l>),
    /// The store gave no answer, and at least one limit would rather refuse than not
    /// count ([`Decision::uncountable`] names them). Nothing was charged.
    Uncountable,
}

/// One limit's part in a decision.
#[derive(Clone, Copy, Debug)]
pub struct LimitOutcome<'d> {
    check: &'d Check<'d>,
    rule: &'d Rule,
    outcome: &'d Outcome,
}

impl<'l> Decision<'l> {
    /// Nothing has been looked at yet, so nothing stands in the way.
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

    /// The outcomes are there; this is what they come to.
    #[inline]
    pub(crate) fn count(&mut self, admitted: bool, at: Timestamp, wall_ahead: i64) {
        self.fate = if admitted { Fate::Admitted } else { Fate::Refused };
        (self.at, self.wall_ahead) = (Some(at), wall_ahead);
    }

    /// The store gave no answer; this is what the limits say then.
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

    /// A list or a block has decided; no limit's outcome is shown.
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

    /// How it came about.
    pub const fn fate(&self) -> Fate<'l> {
        self.fate
    }

    /// Whether the request may go ahead.
    pub const fn is_allowed(&self) -> bool {
        matches!(self.fate, Fate::Admitted | Fate::AllowListed(_))
    }

    /// Whether it was made without the store, which gave no answer: as the limits'
    /// `on_outage` says, and on this node alone.
    pub const fn is_degraded(&self) -> bool {
        self.degraded.is_some()
    }

    /// The limits that would rather refuse than not count, where those decided
    /// ([`Fate::Uncountable`]).
    pub fn uncountable(&self) -> impl Iterator<Item = &'l Limit> {
        let checks = if self.fate == Fate::Uncountable { &self.checks[..] } else { &[] };
        // Windows of one limit are neighbours.
        let mut last = None;
        checks.iter().map(|check| check.limit).filter(move |limit| {
            denies(limit) && last.replace(limit.name()).is_none_or(|name| name != limit.name())
        })
    }

    /// When, by the store's clock; `None` where nothing was counted.
    pub const fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// When, by the wall clock: what dates in an answer count from. The store's own clock
    /// need not follow a wall clock that is corrected while the process runs.
    pub fn wall_at(&self) -> Option<Timestamp> {
        self.at.map(|at| at.shifted(self.wall_ahead))
    }

    /// Who holds the slots this decision took, if it took any.
    pub const fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// What was charged, to be settled when the decision is gone; `None` where nothing was.
    pub fn receipt(&self) -> Option<Receipt> {
        Receipt::of(self)
    }

    /// Every limit that was counted, window by window, in the order of the policy.
    ///
    /// Of a degraded decision, those that this node counted: with the numbers of its
    /// share.
    #[inline]
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitOutcome<'_>> {
        Limits {
            checks: &self.checks,
            outcomes: self.outcomes.iter(),
            parts: self.degraded.as_ref().map(|degraded| degraded.parts.iter()),
        }
    }

    /// Tells what is left after a later decision about one of the requests that were decided
    /// together, by the same limits.
    pub fn follow(&mut self, part: u32, later: &Decision<'_>) {
        let of_part = self.checks.iter().zip(&mut self.outcomes).filter(|(check, _)| check.part == part);
        for ((_, outcome), later) in of_part.zip(&later.outcomes) {
            (outcome.remaining, outcome.reset_after) = (later.remaining, later.reset_after);
        }
    }

    /// Refusals without counting by limits in shadow mode: what would have happened.
    pub fn shadowed(&self) -> &[Block<'l>] {
        self.checks.shadowed()
    }

    /// The limit that matters most to the caller.
    ///
    /// Of a refusal, the one to wait for longest: whoever waits for it has
    /// waited for all. Else the one with the least left, since it refuses first.
    /// Limits in shadow mode decide nothing.
    pub fn limiting(&self) -> Option<LimitOutcome<'_>> {
        // Asked once and not for each limit: every answer names the limiting limit.
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
            binding.filter(|it| !it.outcome.is_admitted()).max_by_key(|it| match it.outcome.retry_after() {
                Some(wait) => (false, wait),
                None => (true, Span::ZERO),
            })
        } else {
            binding.min_by_key(LimitOutcome::closeness)
        }
    }

    /// Returns the limit that is closest to refusing among those that `is_meant` selects: the one
    /// with the least left. Limits in shadow mode are left out.
    pub fn closest_among(&self, is_meant: impl Fn(&LimitOutcome<'_>) -> bool) -> Option<LimitOutcome<'_>> {
        let meant = self.limits().filter(|it| it.is_binding() && is_meant(it));
        meant.min_by_key(LimitOutcome::closeness)
    }

    /// The limit that matters most to the caller, as [`limiting`](Self::limiting) has it, but
    /// by the waits that callers are told: a lease that ends late does not go before a
    /// limit that really takes longer.
    pub fn limiting_for_retry(&self) -> Option<LimitOutcome<'_>> {
        if self.fate != Fate::Refused {
            return self.limiting();
        }
        let refusing = self.limits().filter(|it| it.is_binding() && !it.outcome.is_admitted());
        refusing.max_by_key(|it| match it.advised_wait() {
            Some(wait) => (false, wait),
            None => (true, Span::ZERO),
        })
    }

    /// How long callers are told to wait, before any jitter. `None` for what is allowed,
    /// and where waiting does not help.
    ///
    /// ```
    /// # use tollgate::{Call, Limiter, Span};
    /// let limiter = Limiter::from_policy("limits: [{by: ip, slots: 1, ttl: 1m}]")?;
    /// let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    /// assert_eq!(limiter.check(&call).advised_wait(), None);
    /// let refused = limiter.check(&call);
    /// // A lease may last for a minute; most slots are given back long before.
    /// assert_eq!(refused.advised_wait(), Some(Span::from_secs(1)));
    /// assert!(refused.retry_after() > refused.advised_wait());
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn advised_wait(&self) -> Option<Span> {
        match self.fate {
            Fate::Refused => self.limiting_for_retry()?.advised_wait(),
            // When the store is back nobody knows, but it is asked every second.
            Fate::Uncountable => Some(DEFAULT_RETRY_AFTER),
            _ => None,
        }
    }

    /// How long to wait before the same request can pass, if nobody else
    /// spends. `None` for what is allowed, and where waiting does not help.
    pub fn retry_after(&self) -> Option<Span> {
        if self.fate == Fate::Refused { self.limiting()?.outcome.retry_after() } else { None }
    }
}

/// The limits of a decision. By hand: every answer walks over them several times, and
/// nearly none is degraded.
#[derive(Clone)]
struct Limits<'d> {
    checks: &'d [Check<'d>],
    outcomes: std::slice::Iter<'d, Outcome>,
    /// Which checks the outcomes are of, where it is not each in turn.
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

    /// What most walks come to: asked once whether it is degraded, not for each limit.
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

/// How long callers are told to wait for a rule that answered so: what
/// [`LimitOutcome::advised_wait`] is, for whoever only looked.
pub fn advised_wait(rule: &Rule, outcome: &Outcome) -> Option<Span> {
    let wait = outcome.retry_after()?;
    Some(if matches!(rule.quota, Quota::Concurrency(_)) { DEFAULT_RETRY_AFTER } else { wait })
}

impl<'d> LimitOutcome<'d> {
    /// The limit in the policy.
    pub const fn limit(&self) -> &'d Limit {
        self.check.limit
    }

    /// The rule that was applied: the limit's own, its plan's or its override's; of a
    /// degraded decision, this node's share of that.
    pub const fn rule(&self) -> &'d Rule {
        self.rule
    }

    /// The rule of the policy: what [`rule`](Self::rule) is, or is this node's share of.
    pub const fn policy_rule(&self) -> &'d Rule {
        self.check.rule
    }

    /// How long callers are told to wait for this limit, before any jitter; `None` where it
    /// has room, or where waiting does not help.
    ///
    /// When a slot comes back no clock knows. The end of a lease is the latest it can be, a
    /// minute for most, and callers who believed that would sleep while slots stand empty:
    /// they are asked to come back shortly.
    pub fn advised_wait(&self) -> Option<Span> {
        advised_wait(self.rule, self.outcome)
    }

    /// The rule's name: the limit's, with its window where it has several.
    pub fn name(&self) -> &'d str {
        &self.check.rule.name
    }

    /// Whose allowance it is.
    pub const fn key(&self) -> &'d tollgate_policy::Key {
        &self.check.key
    }

    /// Which of the requests that were decided together it is of, from zero.
    pub const fn part(&self) -> u32 {
        self.check.part
    }

    /// What the request asked for.
    pub const fn cost(&self) -> u64 {
        self.check.cost
    }

    /// What the limit answered.
    pub const fn outcome(&self) -> &'d Outcome {
        self.outcome
    }

    /// Whether so much of the allowance is spent that the limit's `soft` threshold is
    /// reached. Only of what is admitted: a refusal is beyond it.
    pub fn is_soft(&self) -> bool {
        let Outcome { limit, remaining, .. } = *self.outcome;
        self.check.limit.soft().is_some_and(|soft| {
            let spent = u128::from(limit.saturating_sub(remaining)) * 100;
            self.is_binding()
                && self.outcome.is_admitted()
                && spent >= u128::from(soft.at) * u128::from(limit)
        })
    }

    /// Orders limits by how close they are to refusing, the closest first.
    fn closeness(&self) -> (u64, std::cmp::Reverse<Span>) {
        (self.outcome.remaining, std::cmp::Reverse(self.outcome.reset_after))
    }

    /// Whether its refusal refuses the request.
    pub fn is_binding(&self) -> bool {
        self.check.limit.mode() != Mode::Shadow
    }
}
