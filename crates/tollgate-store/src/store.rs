//! The contract between a limiter and a store.
//!
//! A request becomes a batch of checks. The store answers the batch as a whole: all of it is
//! charged or none, at one instant of the store's own clock. A batch can mix all kinds of amounts,
//! so a slot and a rate are taken together or not at all, and a shared call can acquire "up to n"
//! units.
//!
//! The behavior without an answer of the store is in `tollgate::outage`.
//!
//! Invariant: a refused batch leaves every state unchanged byte for byte, except for limits that
//! count refusals. Usage under a replaced rule is not a charge: it is carried over once, also by a
//! refusal. Tested by `conformance`, which every store runs.

use std::future::Future;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Rule, Span, Timestamp};

use crate::clock::ClockId;
use crate::join::join_all;

/// The amount to acquire from one key under one rule.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The rule, with its quota.
    pub rule: &'a Rule,
    /// The key in canonical bytes: equal bytes are the same key.
    pub key: &'a [u8],
    /// Units, or a slot.
    pub amount: Amount,
    /// Whether a refusal by this rule refuses the batch. A rule in shadow mode answers, and spends
    /// when it would admit, but does not refuse.
    pub binding: bool,
    /// Whether the rule is charged although the batch is refused: down to zero remaining or, for a
    /// tally, in full.
    pub count_denied: bool,
}

impl<'a> Check<'a> {
    /// Creates a binding check for `cost` units.
    pub fn new(rule: &'a Rule, key: &'a [u8], cost: u64) -> Self {
        Self { rule, key, amount: Amount::Exactly(cost), binding: true, count_denied: false }
    }

    /// Returns whether an admission takes a slot or a place in a queue. A caller that leaves without the
    /// answer could not release it.
    pub fn takes_place(&self) -> bool {
        self.rule.quota.takes_place(self.amount)
    }
}

/// Outcomes, one per check. Up to four are stored inline.
pub type Outcomes = SmallVec<[Outcome; 4]>;

/// The answer of a store to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether all binding checks were admitted, and therefore all were charged.
    pub admitted: bool,
    /// The time by the store's clock.
    pub at: Timestamp,
    /// One outcome per check, in their order. In a refused batch, the outcome of a rule that would
    /// have admitted is an admission with zero units charged.
    pub outcomes: Outcomes,
}

/// The id of an adjustment, by which a store recognizes a repetition.
///
/// Ids are unique among all adjustments of all nodes that share a store: they contain a random
/// number, such as the id of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdjustmentId(pub u128);

/// An adjustment that may be sent again: the store applies it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeatable {
    /// The change.
    pub adjustment: Adjustment,
    /// The id by which the store recognizes a repetition.
    pub id: AdjustmentId,
}

impl Repeatable {
    /// Creates an adjustment with an id.
    pub const fn new(adjustment: Adjustment, id: AdjustmentId) -> Self {
        Self { adjustment, id }
    }
}

/// How long a store recognizes the id of an adjustment. A shorter time is sufficient for an
/// adjustment that no longer changes anything by then.
pub const ADJUSTMENT_ID_LIFETIME: Span = Span::from_minutes(10);

/// A store: keeps the state of every key.
///
/// Implementations make [`Quota::step`](tollgate_core::Quota::step) atomic and durable; they do no
/// arithmetic of their own.
pub trait Store: Send + Sync + 'static {
    /// Decides a batch: all checks are charged or none.
    ///
    /// A caller that drops the future cannot release the slots of the batch, nor leave the queues in
    /// which it waits, so the store takes back a slot or a place in a queue that the batch acquires
    /// after that. Other charges of the batch may stay.
    fn decide(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Decides a batch without waiting, if possible. Appends an outcome per check, and returns
    /// whether all were admitted and the time.
    ///
    /// `None` is not a refusal: nothing was done, and the caller must use
    /// [`decide_uncached`](Self::decide_uncached).
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let _ = (checks, outcomes);
        None
    }

    /// Decides a batch as [`try_decide`](Self::try_decide) does. `now` was just read from a clock with the id
    /// [`clock_id`](Self::clock_id), so that a store on that clock need not read it again. The default implementation
    /// ignores it.
    fn try_decide_at(
        &self,
        checks: &[Check<'_>],
        now: Timestamp,
        outcomes: &mut Outcomes,
    ) -> Option<(bool, Timestamp)> {
        let _ = now;
        self.try_decide(checks, outcomes)
    }

    /// Returns the id of the clock of the decisions, if it is a clock of this process.
    fn clock_id(&self) -> Option<ClockId> {
        None
    }

    /// Starts to load the state of a key that is decided soon, without waiting for it.
    ///
    /// A hint, for callers that know their next keys, such as a pipeline: a state in this process is then in the
    /// caches when it is needed. The default implementation does nothing.
    fn prefetch(&self, rule: &Rule, key: &[u8]) {
        let _ = (rule, key);
    }

    /// Decides a batch as [`decide`](Self::decide) does, after [`try_decide`](Self::try_decide) gave
    /// no answer. A store with a cache of refusals does not search it again.
    fn decide_uncached(
        &self,
        checks: &[Check<'_>],
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        self.decide(checks)
    }

    /// Decides the batches of several requests, each as [`decide_uncached`](Self::decide_uncached) does, and
    /// returns their answers in order. They are started in order, so batches with the same keys are decided
    /// in that order.
    ///
    /// For callers that have many requests at the same time, such as a pipeline: a store in other processes
    /// can send them together.
    fn decide_all(
        &self,
        batches: &[&[Check<'_>]],
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
        join_all(batches.iter().map(move |checks| self.decide_uncached(checks)))
    }

    /// Adjusts one key, and returns its state after that. The outcome of a renewal
    /// ([`Adjustment::Renew`]) is an admission of one unit if the owner holds its slot, else of zero; so is that of a
    /// refund that left a place of a queue as it is ([`Quota::keeps_place`](tollgate_core::Quota::keeps_place)).
    fn adjust(
        &self,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Adjusts one key once: a repetition with the same id changes nothing, and returns the state.
    /// It may therefore be repeated after any error, for [`ADJUSTMENT_ID_LIFETIME`].
    ///
    /// The default implementation ignores the id, which is right for a store in this process: it
    /// never fails. A store that may apply an adjustment and fail to report it should recognize
    /// ids, and say so in [`recognizes_adjustments`](Self::recognizes_adjustments).
    fn adjust_once(
        &self,
        rule: &Rule,
        key: &[u8],
        once: Repeatable,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        self.adjust(rule, key, once.adjustment)
    }

    /// Returns whether [`adjust_once`](Self::adjust_once) recognizes repetitions. Without that, an
    /// adjustment in doubt is repeated only if it charges: a key may then pay twice, but never too
    /// little.
    fn recognizes_adjustments(&self) -> bool {
        false
    }

    /// Returns whether the store decides every batch and makes every adjustment without waiting, so that
    /// [`try_decide`](Self::try_decide) and [`try_adjust`](Self::try_adjust) always answer.
    fn never_waits(&self) -> bool {
        false
    }

    /// Adjusts one key without waiting, if possible, and returns its state after that. `None`:
    /// nothing was done, and the caller must use [`adjust`](Self::adjust).
    ///
    /// A store that answers one adjustment without waiting answers all of them so.
    fn try_adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Option<Outcome> {
        let _ = (rule, key, adjustment);
        None
    }

    /// Checks whether the store answers, without changing anything.
    ///
    /// It serves nodes without traffic, which would otherwise not notice an outage. A condition
    /// that prevents decisions must fail the probe too, because the limiter uses the store again
    /// after `Ok`.
    fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Returns how far the wall clock is ahead of the time of an answer, in microseconds, to
    /// convert that time to a date.
    fn wall_ahead(&self, at: Timestamp) -> i64 {
        let _ = at;
        0
    }

    /// Returns whether other processes take and release slots of this store, so that a request that
    /// waits for a slot has to ask again from time to time.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns the last known number of nodes that share this store, including this one.
    fn nodes(&self) -> usize {
        1
    }

    /// Returns the units of a key that this node holds in leases, if it decides from leases.
    fn holding(&self, rule: &Rule, key: &[u8]) -> Option<Holding> {
        let _ = (rule, key);
        None
    }

    /// Returns the keys of which this node holds units in leases, those with the most units first, at
    /// most `max_keys` of them.
    fn holdings(&self, max_keys: usize) -> Vec<Holding> {
        let _ = max_keys;
        Vec::new()
    }
}

/// The units of one key that a node holds in leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The name of the rule.
    pub rule: Box<str>,
    /// The key in canonical bytes.
    pub key: Box<[u8]>,
    /// The held units.
    pub units: u64,
    /// The time until the last of them expire.
    pub expires_in: Span,
}

/// The underlying cause of an error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error returned when a store gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The deadline passed. A store that learns later of an applied charge compensates it, so the
    /// caller may count the request elsewhere.
    #[error("no answer from the store within {0:?}")]
    TimedOut(std::time::Duration),
    /// The store rejected the batch before it wrote anything. Safe to retry.
    #[error("the store refused the batch")]
    Refused(#[source] BoxError),
    /// The connection broke, or the answer was invalid. The charge may have been applied, which
    /// cannot be found out, so the caller must not retry blindly.
    #[error("the store failed")]
    Failed(#[source] BoxError),
    /// Data that Tollgate did not write is stored under the key of this state. Nothing was written;
    /// other keys are not affected.
    #[error("the data stored under `{0}` was not written by Tollgate")]
    Foreign(String),
    /// The keys are being moved to another node of the store. Nothing was written; other keys are not
    /// affected. Safe to retry.
    #[error("the keys are being moved to another node of the store")]
    Migrating(#[source] BoxError),
    /// The node that holds these keys gave no answer, for the reason inside. Other keys are not
    /// affected: the rest of the store answers.
    #[error("a part of the store gave no answer")]
    Part(#[source] Box<StoreError>),
}

impl StoreError {
    /// Returns whether a change may have been applied.
    pub fn is_in_doubt(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Part(error) => error.is_in_doubt(),
            _ => false,
        }
    }
}
