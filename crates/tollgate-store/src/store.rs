//! The contract between a limiter and whatever keeps the state.
//!
//! A request becomes a batch of checks. The store answers the batch as one: all
//! of it is charged or none, at one instant of the store's own clock. The same
//! batch carries every kind of demand, so a slot and a rate are taken together
//! or not at all, and a shared call can ask for "up to n" units.
//!
//! Not here: what to do when a store gives no answer (`tollgate::outage`).
//!
//! Invariant: a refused batch leaves every state byte for byte as it was, but
//! for limits that count refusals. What a key has spent under a rule that was
//! replaced is no charge: it is carried over once, also by a refusal.
//! Held by `conformance`, which every store runs.

use std::future::Future;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Rule, Timestamp};

/// What is asked of one key under one rule.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The rule, with its quota.
    pub rule: &'a Rule,
    /// The key in canonical bytes: equal bytes, equal key.
    pub key: &'a [u8],
    /// Units, or a slot.
    pub amount: Amount,
    /// Whether a refusal by this rule refuses the batch. A rule in shadow mode
    /// answers, and spends when it would admit, but binds nobody.
    pub binding: bool,
    /// Whether the rule is charged although the batch is refused: down to nothing left,
    /// or, if it is a tally, in full.
    pub count_denied: bool,
}

impl<'a> Check<'a> {
    /// A binding check for `cost` units.
    pub fn new(rule: &'a Rule, key: &'a [u8], cost: u64) -> Self {
        Self { rule, key, amount: Amount::Exactly(cost), binding: true, count_denied: false }
    }
}

/// Outcomes, one for each check: room for four before the heap is needed.
pub type Outcomes = SmallVec<[Outcome; 4]>;

/// What a store answers to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether all binding checks were admitted, and so all were charged.
    pub admitted: bool,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// One outcome for each check, in their order. In a refused batch, a rule
    /// that would have admitted says so, with zero units charged.
    pub outcomes: Outcomes,
}

/// Keeps the state of every key.
///
/// Implementations make [`Quota::step`](tollgate_core::Quota::step) atomic and
/// durable in their own way; they do no arithmetic of their own.
pub trait Store: Send + Sync + 'static {
    /// Decides a batch: everything is charged or nothing is.
    fn decide(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Decides a batch without waiting, where that is possible: appends an
    /// outcome for each check, and says whether all were admitted and when.
    ///
    /// `None` is no refusal: nothing has happened, and [`decide`](Self::decide)
    /// is to be asked.
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let _ = (checks, outcomes);
        None
    }

    /// Changes one key, and says how it stands then.
    fn adjust(
        &self,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Asks the store whether it answers, and changes nothing.
    ///
    /// For a node without traffic, which would not notice otherwise. What would keep a
    /// decision from being answered should fail here too: whoever is told `Ok` asks the
    /// store again.
    fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// How far the wall clock is ahead of the time of an answer, in microseconds: what
    /// turns such a time into a date.
    fn wall_ahead(&self, at: Timestamp) -> i64 {
        let _ = at;
        0
    }

    /// How many nodes were last known to share this store, this one included.
    fn nodes(&self) -> usize {
        1
    }
}

/// Whatever went wrong underneath.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a store gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The deadline passed. A store that learns later that the charge has landed takes
    /// it back, so whoever was told this may count the request elsewhere.
    #[error("no answer from the store within {0:?}")]
    TimedOut(std::time::Duration),
    /// Refused before anything was written. Safe to retry.
    #[error("the store refused the batch")]
    Refused(#[source] BoxError),
    /// The connection broke, or the answer made no sense. The charge may have landed,
    /// and nobody will learn of it: never retried blindly.
    #[error("the store failed")]
    Failed(#[source] BoxError),
    /// Something that no Tollgate wrote is where this state should be. Nothing was
    /// written; other keys are not affected.
    #[error("what is stored under `{0}` is not a state that Tollgate wrote")]
    Foreign(String),
}
