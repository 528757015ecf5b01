//! The decision of a limiter about a request.
//!
//! A decision lists every limit that applied, also when the request was allowed: a client that
//! knows its remaining units can slow down before it is refused.
//!
//! Waits are [`Duration`]s here: this is the edge of the library. The arithmetic inside uses
//! `tollgate_core::Span`, and [`LimitOutcome::outcome`] returns its exact numbers.
//!
//! Formatting for HTTP is in `tollgate_http`.

mod held;
mod limit_outcome;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Outcome, Owner, Span, Timestamp, Verdict};
use tollgate_policy::{Block, Check, Checks, Limit, ListEntry, Matched, PriorityClass};
use tollgate_store::Outcomes;

use crate::adaptive::InFlight;
use crate::id::DecisionId;
use crate::observer::NotHeld;
use crate::outage::{FallbackOutcome, LocalDecision, denies};
use crate::receipt::{PackedReceipt, Receipt};
use crate::shed::Shed;

pub use held::HeldDecision;
use limit_outcome::{DEFAULT_RETRY_AFTER, Limits};
pub use limit_outcome::{LimitOutcome, advised_wait, expected_wait};

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
    /// The request in flight under limits with a learned number of slots.
    pub(crate) in_flight: Option<Arc<InFlight>>,
    /// The decision made without the store. Boxed, because it is rarely present.
    pub(crate) degraded: Option<Box<LocalDecision>>,
    /// The id, once an observer or a caller has seen it.
    pub(crate) id: Option<DecisionId>,
    /// The time after which a request that a line has refused may find a slot.
    line_wait: Option<Duration>,
    /// The index of the limit that refused, once it was searched for ([`find_refusing`](Self::find_refusing)).
    refusing: Option<u8>,
    /// Whether this is about the slots of a request that was admitted before, and starts now.
    pub(crate) is_start: bool,
    /// The reason to refuse a request that could have waited.
    pub(crate) not_held: Option<NotHeld>,
}

/// The reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// This node refused without asking the store, to protect itself or the service behind it from
    /// overload. Nothing was charged.
    Shed(Shed<'l>),
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
            in_flight: None,
            degraded: None,
            id: None,
            line_wait: None,
            refusing: None,
            is_start: false,
            not_held: None,
        }
    }

    /// Returns the rank of the request among those that wait: 0 is the most important. Without priority classes,
    /// all requests have this rank.
    pub fn rank(&self) -> u8 {
        self.priority().map_or(0, PriorityClass::rank)
    }

    /// Removes the outcomes of a refused attempt, which is repeated.
    pub(crate) fn discard_outcomes(&mut self) {
        self.outcomes.clear();
        (self.fate, self.at, self.degraded) = (Fate::Admitted, None, None);
        self.refusing = None;
    }

    /// Refuses because of the line at one check. Other limits were not asked.
    pub(crate) fn refuse_at(
        &mut self,
        at: usize,
        outcome: Outcome,
        wait: Duration,
        (now, wall_ahead): (Timestamp, i64),
    ) {
        self.discard_outcomes();
        let mut index = 0..;
        self.checks.retain(|_| index.next() == Some(at));
        self.outcomes.push(outcome);
        self.owner = None;
        self.line_wait = Some(wait);
        self.count(false, now, wall_ahead);
    }

    /// Sets the outcomes of the store and derives the result from them.
    #[inline]
    pub(crate) fn count(&mut self, admitted: bool, at: Timestamp, wall_ahead: i64) {
        self.fate = if admitted { Fate::Admitted } else { Fate::Refused };
        (self.at, self.wall_ahead) = (Some(at), wall_ahead);
    }

    /// Adds the slots that the request has taken after its wait. Both decisions were counted by the store.
    pub(crate) fn add_slots(&mut self, slots: Self) {
        self.checks.append(slots.checks);
        self.outcomes.extend(slots.outcomes);
        (self.owner, self.in_flight) = (slots.owner, slots.in_flight);
        self.at = self.at.or(slots.at);
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
        self.drop_checks();
    }

    /// Refuses the request on this node, without the store.
    pub(crate) fn shed(&mut self, shed: Shed<'l>) {
        self.fate = Fate::Shed(shed);
        self.drop_checks();
    }

    /// Removes the checks of a decision that counts nothing.
    fn drop_checks(&mut self) {
        self.checks.remove_checks();
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

    /// Whether a limit applied to the request, in any mode.
    pub fn is_limited(&self) -> bool {
        self.is_degraded()
            || self.in_flight.is_some()
            || !self.outcomes.is_empty()
            || !self.checks.shadowed().is_empty()
    }

    /// Returns the priority class of the request, if the policy has `priorities`. For requests that
    /// were decided together, returns the least important of their classes. A decision by the name
    /// of a limit has no class.
    pub const fn priority(&self) -> Option<&'l PriorityClass> {
        self.checks.priority()
    }

    /// Returns whether the request was refused to protect the service from overload, and not because
    /// of its caller's quota: by this node ([`Fate::Shed`]) or by a limit of `shed`.
    pub fn is_shed(&self) -> bool {
        match self.fate {
            Fate::Shed(_) => true,
            Fate::Refused => self.limiting().is_some_and(|it| it.limit().is_shed()),
            _ => false,
        }
    }

    /// Returns why a request was refused that could have waited; `None` if it was admitted, or if limits refused it.
    pub const fn not_held(&self) -> Option<NotHeld> {
        self.not_held
    }

    /// Returns whether it was made on this node alone, by the limits' `on_outage`, because the
    /// store gave no answer.
    pub const fn is_degraded(&self) -> bool {
        self.degraded.is_some()
    }

    /// Returns the limits that refused because they could not count ([`Fate::Uncountable`]).
    pub fn uncountable(&self) -> impl Iterator<Item = &'l Limit> {
        let checks = if matches!(self.fate, Fate::Uncountable) { &self.checks[..] } else { &[] };
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

    /// Returns the request in flight under limits with a learned number of slots (`slots: adaptive`), if it
    /// was admitted by any. It is in flight until the decision and all clones of the guard are dropped.
    pub const fn in_flight(&self) -> Option<&Arc<InFlight>> {
        self.in_flight.as_ref()
    }

    /// Returns a receipt to settle the charge after the decision is dropped, or `None` if nothing
    /// was charged.
    pub fn receipt(&self) -> Option<Receipt> {
        Receipt::of(self)
    }

    /// Returns the same as [`receipt`](Self::receipt) in few bytes, for a caller that keeps many.
    #[inline]
    pub fn packed_receipt(&self) -> Option<PackedReceipt> {
        PackedReceipt::of(self)
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
            line_wait: self.line_wait,
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
    /// longer actual wait. Limits of `shed` come last: a caller beyond its own quota learns it, even
    /// during an overload. Otherwise it is the limit with the least remaining, since it refuses first.
    /// Limits in shadow mode are ignored.
    pub fn limiting(&self) -> Option<LimitOutcome<'_>> {
        if let Some(index) = self.refusing.map(usize::from)
            && let (Some(check), Some(outcome)) = (self.checks.get(index), self.outcomes.get(index))
        {
            return Some(LimitOutcome::counted(check, outcome, self.line_wait));
        }
        // Tested once instead of per limit: every answer needs the limiting limit.
        if self.degraded.is_some() {
            return self.limiting_among(self.limits());
        }
        let counted = self.checks.iter().zip(&self.outcomes);
        self.limiting_among(
            counted.map(|(check, outcome)| LimitOutcome::counted(check, outcome, self.line_wait)),
        )
    }

    /// Searches for the limit that refused, so that the observer and the writers of an answer need not repeat it. The
    /// decision is final.
    #[inline]
    pub(crate) fn find_refusing(&mut self) {
        if matches!(self.fate, Fate::Refused) && self.degraded.is_none() {
            let index = self.limiting().and_then(|it| {
                let is_refusing = |check: &Check<'_>| std::ptr::eq(check, it.check());
                self.checks.iter().position(is_refusing)
            });
            self.refusing = index.and_then(|index| u8::try_from(index).ok());
        }
    }

    #[inline]
    fn limiting_among<'d>(&self, limits: impl Iterator<Item = LimitOutcome<'d>>) -> Option<LimitOutcome<'d>> {
        let binding = limits.filter(LimitOutcome::is_binding);
        if !matches!(self.fate, Fate::Refused) {
            return binding.min_by_key(|it| (it.limit().is_shed(), it.closeness()));
        }
        let mut refusing = binding.filter(|it| !it.is_admitted());
        let first = refusing.next()?;
        // Most refusals are by one limit, whose wait is compared with no other.
        let Some(second) = refusing.next() else { return Some(first) };
        let refusing = [first, second].into_iter().chain(refusing);
        refusing.max_by_key(|it| (!it.limit().is_shed(), wait_order(it.advised_wait())))
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
        // Few limits admit with a wait.
        let is_immediate = || self.outcomes.iter().all(|it| it.wait().is_zero());
        if !matches!(self.fate, Fate::Admitted) || is_immediate() {
            return Duration::ZERO;
        }
        let waits = self.limits().filter(LimitOutcome::is_binding).map(|it| it.outcome().wait());
        waits.max().unwrap_or_default().into()
    }

    /// Refuses an admitted request because of its [`wait`](Self::wait), for a caller that cannot hold
    /// it for longer than `max_wait`. The limits with a longer wait refuse, and are expected to have
    /// room when the rest of it has passed.
    ///
    /// This changes only the decision. The caller takes the [place](crate::Limiter::queue_place) of
    /// the request before, and releases it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Call, Limiter};
    /// let limiter = Limiter::from_policy(
    ///     "limits: [{by: user, algorithm: leaky-queue, rate: 1/hour, queue: {length: 1}}]",
    /// )?;
    /// let call = Call::new("GET", "/").user("ann");
    /// assert!(limiter.check(&call).wait().is_zero());
    /// let mut second = limiter.check(&call);
    /// let place = limiter.queue_place(&second);
    /// second.refuse_wait(Duration::from_secs(60));
    /// assert!(!second.is_allowed() && second.retry_after() < Some(Duration::from_secs(3_541)));
    /// drop(place);
    /// assert!(limiter.check(&call).is_allowed());
    /// # Ok::<(), tollgate::PolicyError>(())
    /// ```
    pub fn refuse_wait(&mut self, max_wait: Duration) {
        if self.wait() <= max_wait {
            return;
        }
        self.fate = Fate::Refused;
        self.owner = None;
        let max_wait = Span::from(max_wait).as_micros();
        let is_binding: SmallVec<[bool; 4]> = self.limits().map(|it| it.is_binding()).collect();
        for (outcome, is_binding) in self.outcomes.iter_mut().zip(is_binding) {
            let Verdict::Admitted { units, wait, .. } = outcome.verdict else { continue };
            outcome.remaining = outcome.remaining.saturating_add(units).min(outcome.limit);
            let excess = Span::from_micros(wait.as_micros().saturating_sub(max_wait));
            outcome.verdict = if is_binding && !excess.is_zero() {
                Verdict::Refused { retry_after: excess }
            } else {
                Verdict::admitted(0)
            };
        }
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
            // The end is unknown, but the store is probed and the load is sampled every second or sooner.
            Fate::Uncountable | Fate::Shed(_) => Some(DEFAULT_RETRY_AFTER),
            _ => None,
        }
    }

    /// Returns the wait after which the same request can pass if no other request spends. `None` if
    /// the request is allowed or waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if !matches!(self.fate, Fate::Refused) {
            return None;
        }
        let refusing = self.limits().filter(|it| it.is_binding() && !it.is_admitted());
        refusing.map(|it| it.retry_after()).max_by_key(|wait| wait_order(*wait)).flatten()
    }
}

/// The sort key of a wait. A refusal without a wait, which never ends, is the longest.
fn wait_order(wait: Option<Duration>) -> (bool, Duration) {
    (wait.is_none(), wait.unwrap_or_default())
}
