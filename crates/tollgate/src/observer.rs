//! Being told of every decision: for whoever counts, records or traces.
//!
//! A limiter without an observer does not even read a clock for it. With one, each
//! policy gets a [`Watch`] of its own, made when the policy comes into force and gone
//! with the last request that it decides: so what a watch knows of limits is never that
//! of another policy, and nothing has to be looked up by name on the way of a request.
//!
//! Not here: counting and recording (`tollgate-telemetry`).

use std::sync::Arc;

use tollgate_core::{RuleId, Span, Timestamp};
use tollgate_policy::{Key, Policy, Request};
use tollgate_store::Clock;

use crate::decision::Decision;
use crate::id::DecisionId;

/// Is told of policies that come into force.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Call, Event, Limiter, Observer, Policy, Watch};
///
/// #[derive(Default)]
/// struct Refusals(AtomicU64);
///
/// impl Watch for Refusals {
///     fn decided(&self, event: &Event<'_, '_>) {
///         self.0.fetch_add(u64::from(!event.decision.is_allowed()), Ordering::Relaxed);
///     }
/// }
///
/// struct Counter(Arc<Refusals>);
///
/// impl Observer for Counter {
///     fn watch(&self, _: &Arc<Policy>, _: u64) -> Arc<dyn Watch> {
///         self.0.clone()
///     }
/// }
///
/// let refusals = Arc::new(Refusals::default());
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 2/minute}]")?
///     .with_observer(Counter(refusals.clone()));
/// for _ in 0..5 {
///     limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
/// }
/// assert_eq!(refusals.0.load(Ordering::Relaxed), 3);
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A policy comes into force, the one of this number. Who is told of what it decides.
    fn watch(&self, policy: &Arc<Policy>, version: u64) -> Arc<dyn Watch>;
}

/// Is told of what one policy decides. Called on the way of the request: it must not wait.
pub trait Watch: Send + Sync + 'static {
    /// A request was decided about.
    fn decided(&self, event: &Event<'_, '_>);

    /// The store was asked and waited for, this long, and answered or did not.
    fn asked(&self, took: Span, answered: bool) {
        let _ = (took, answered);
    }

    /// A charge of an earlier decision was corrected to its final cost.
    fn settled(&self, settlement: &Settlement<'_>) {
        let _ = settlement;
    }
}

/// The final cost of one charge.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settlement<'s> {
    /// The decision that charged.
    pub id: DecisionId,
    /// The rule that was charged.
    pub rule: RuleId,
    /// The key that was charged.
    pub key: &'s Key,
    /// The units that were charged at first.
    pub reserved: u64,
    /// The units that it cost in the end.
    pub cost: u64,
}

/// What a watch is told about a decision.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Event<'e, 'l> {
    /// What the caller quotes when it asks why.
    pub id: DecisionId,
    /// What was decided about; `None` where a limit and a key were named instead.
    pub request: Option<&'e dyn Request>,
    /// What was decided.
    pub decision: &'e Decision<'l>,
    /// When, by this node's clock. The decision's own time is the store's.
    pub at: Timestamp,
    /// How long deciding took, the store included.
    pub took: Span,
}

/// An observer, and what it watches the policy in force with.
pub(crate) struct ActiveObserver {
    observer: Arc<dyn Observer>,
    watch: Arc<dyn Watch>,
    clock: Arc<dyn Clock>,
}

impl ActiveObserver {
    pub(crate) fn new(
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
        policy: &Arc<Policy>,
        version: u64,
    ) -> Self {
        Self { watch: observer.watch(policy, version), observer, clock }
    }

    /// The same observer, watching another policy.
    pub(crate) fn on(&self, policy: &Arc<Policy>, version: u64) -> Self {
        Self::new(Arc::clone(&self.observer), Arc::clone(&self.clock), policy, version)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn asked(&self, since: Timestamp, answered: bool) {
        self.watch.asked(self.clock.now().since(since), answered);
    }

    pub(crate) fn settled(&self, settlement: &Settlement<'_>) {
        self.watch.settled(settlement);
    }

    /// Tells of a decision that was begun at this time.
    pub(crate) fn decided(
        &self,
        id: DecisionId,
        request: Option<&dyn Request>,
        decision: &Decision<'_>,
        started_at: Timestamp,
    ) {
        let at = self.clock.now();
        self.watch.decided(&Event { id, request, decision, at, took: at.since(started_at) });
    }
}

impl Clone for ActiveObserver {
    fn clone(&self) -> Self {
        Self {
            observer: Arc::clone(&self.observer),
            watch: Arc::clone(&self.watch),
            clock: Arc::clone(&self.clock),
        }
    }
}
