//! Notification of every decision, for metrics, records and traces.
//!
//! Without an observer, a limiter does not read a clock for it. With one, a single reading serves the observer and the
//! store if they have the same clock, and a second one is made only for decisions whose duration the observer asks for.
//!
//! Each policy gets its own
//! [`Watch`], created when the policy comes into force and dropped with the last request that it
//! decides. A watch therefore never sees limits of another policy, and the request path needs no
//! lookup by name.
//!
//! Metrics and records are in `tollgate-telemetry`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{RuleId, Span, Timestamp};
use tollgate_policy::{Key, Limit, Policy, Subject};
use tollgate_store::{Clock, ClockId};

use crate::decision::Decision;
use crate::id::DecisionId;

/// Receives every policy that comes into force.
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
    /// Returns the watch for the decisions of a new policy with this version.
    fn watch(&self, policy: &Arc<Policy>, version: u64) -> Arc<dyn Watch>;
}

/// Receives the decisions of one policy. Methods run on the request path and must not block.
pub trait Watch: Send + Sync + 'static {
    /// Called after a request was decided.
    fn decided(&self, event: &Event<'_, '_>);

    /// Called after a request that [`decided`](Self::decided) reported as admitted was refused, because
    /// it could not be held for its wait. The decision of the event is the refusal, with the same id. A request that
    /// cannot be held while it waits for a slot was not reported before: [`decided`](Self::decided) gets the refusal,
    /// and [`Decision::not_held`] the reason.
    fn not_held(&self, event: &Event<'_, '_>, reason: NotHeld) {
        let _ = (event, reason);
    }

    /// Called after a request that [`decided`](Self::decided) reported as admitted has tried to take its slots,
    /// when it starts. The decision of the event is about the slots only, with the same id; if it refuses, the request
    /// is refused.
    fn started(&self, event: &Event<'_, '_>) {
        let _ = event;
    }

    /// Called after a request that [`decided`](Self::decided) reported as admitted was refused, because its
    /// upstream rejects most requests. The decision of the event is the refusal, with the same id.
    /// `was_limited`: a limit applied to the admitted request.
    fn throttled(&self, event: &Event<'_, '_>, was_limited: bool) {
        let _ = (event, was_limited);
    }

    /// Called after a call to the store, with its duration and whether the store answered.
    fn store_called(&self, took: Duration, answered: bool) {
        let _ = (took, answered);
    }

    /// Called when a request starts to wait in line for a slot of a limit.
    fn line_joined(&self, limit: &Limit) {
        let _ = limit;
    }

    /// Called when a request that [`line_joined`](Self::line_joined) reported waits no more, with the time
    /// that it has waited and whether it got its slot.
    fn line_left(&self, limit: &Limit, waited: Duration, is_served: bool) {
        let _ = (limit, waited, is_served);
    }

    /// Called after a charge of an earlier decision was corrected to its final cost.
    fn settled(&self, settlement: &Settlement<'_>) {
        let _ = settlement;
    }
}

/// The reason why a request was refused that could have waited, in the queue of a limit or for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotHeld {
    /// As many requests waited as the surface may hold, none of them less important.
    NoPlace,
    /// It waited, and a more important request took its place among those that the surface holds.
    Displaced,
    /// The caller does not wait for that long.
    TooLong,
}

/// The final cost of one charge.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settlement<'s> {
    /// The decision that made the charge.
    pub id: DecisionId,
    /// The rule that was charged.
    pub rule: RuleId,
    /// The key that was charged.
    pub key: &'s Key,
    /// The units that were charged initially.
    pub reserved: u64,
    /// The final cost in units.
    pub cost: u64,
    /// The name of the limit.
    pub limit: &'s str,
    /// The time of the charge by the clock of the store, and the wait of the request in the queue of
    /// the limit, if it had to wait. A request that leaves the queue has a cost of zero.
    pub queued: Option<(Timestamp, Span)>,
}

/// A decision as an observer receives it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Event<'e, 'l> {
    /// The id that the caller quotes when it asks for the reason.
    pub id: DecisionId,
    /// The request or descriptor, or `None` if the caller named a limit and a key.
    pub subject: Option<Subject<'e>>,
    /// The decision.
    pub decision: &'e Decision<'l>,
    /// The time by this node's clock: the start of a decision that was made without waiting, else the end. The decision
    /// itself has the time of the store.
    pub at: Timestamp,
    latency: Latency<'e>,
}

/// The duration of a decision.
#[derive(Clone, Copy)]
enum Latency<'e> {
    Measured(Duration),
    /// The decision has just been made, without waiting, and no clock has been read since it began.
    Running {
        clock: &'e dyn Clock,
        started_at: Timestamp,
    },
}

impl Event<'_, '_> {
    /// Returns the duration of the decision, including the store. This reads the clock unless the event
    /// [has its duration](Self::has_duration): reading it takes a large part of the time that a decision in memory
    /// takes, so a watch that needs no duration, or those of a sample only, does not call this for each decision.
    #[inline]
    pub fn took(&self) -> Duration {
        match self.latency {
            Latency::Measured(took) => took,
            Latency::Running { clock, started_at } => clock.now().since(started_at).into(),
        }
    }

    /// Returns whether the duration is known without reading the clock.
    #[inline]
    pub const fn has_duration(&self) -> bool {
        matches!(self.latency, Latency::Measured(_))
    }

    /// Returns the same event with its duration, for a watch that needs it several times.
    #[must_use]
    pub fn with_duration(&self) -> Self {
        Self { latency: Latency::Measured(self.took()), ..*self }
    }
}

impl fmt::Debug for Event<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, decision, at, .. } = self;
        f.debug_struct("Event")
            .field("id", id)
            .field("decision", decision)
            .field("at", at)
            .field("took", &self.took())
            .finish_non_exhaustive()
    }
}

/// An observer with its watch for the policy in force.
pub(crate) struct ActiveObserver {
    observer: Arc<dyn Observer>,
    watch: Arc<dyn Watch>,
    clock: Arc<dyn Clock>,
    /// Whether the store decides by the same clock.
    has_store_clock: bool,
}

impl ActiveObserver {
    /// `store_clock` is the clock of the store, if it is known.
    pub(crate) fn new(
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
        store_clock: Option<ClockId>,
        policy: &Arc<Policy>,
        version: u64,
    ) -> Self {
        let has_store_clock = store_clock.is_some() && store_clock == clock.id();
        Self { watch: observer.watch(policy, version), observer, clock, has_store_clock }
    }

    /// Returns the same observer with a watch for another policy.
    pub(crate) fn on(&self, policy: &Arc<Policy>, version: u64) -> Self {
        Self { watch: self.observer.watch(policy, version), ..self.clone() }
    }

    /// Whether the store decides by the clock of the observer, so that one reading serves both.
    #[inline]
    pub(crate) const fn has_store_clock(&self) -> bool {
        self.has_store_clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn store_called(&self, since: Timestamp, answered: bool) {
        self.watch.store_called(self.clock.now().since(since).into(), answered);
    }

    /// Notifies the watch of a request that waits for a slot since `since`, until the return value is dropped.
    pub(crate) fn track_in_line<'w>(&'w self, limit: &'w Limit, since: Timestamp) -> InLine<'w> {
        self.watch.line_joined(limit);
        InLine { observer: self, limit, since, is_served: false }
    }

    pub(crate) fn settled(&self, settlement: &Settlement<'_>) {
        self.watch.settled(settlement);
    }

    /// Notifies the watch of an admitted request that was refused because it could not be held.
    pub(crate) fn not_held(
        &self,
        id: DecisionId,
        subject: Option<Subject<'_>>,
        decision: &Decision<'_>,
        reason: NotHeld,
    ) {
        self.watch.not_held(&self.later_event(id, subject, decision), reason);
    }

    /// Notifies the watch of an admitted request that starts, and of its slots.
    pub(crate) fn started(&self, id: DecisionId, subject: Option<Subject<'_>>, decision: &Decision<'_>) {
        self.watch.started(&self.later_event(id, subject, decision));
    }

    /// Notifies the watch of an admitted request that the throttle of its upstream refused.
    pub(crate) fn throttled(
        &self,
        id: DecisionId,
        subject: Subject<'_>,
        decision: &Decision<'_>,
        was_limited: bool,
    ) {
        self.watch.throttled(&self.later_event(id, Some(subject), decision), was_limited);
    }

    /// Creates the event of a change to a request that was decided before.
    fn later_event<'e, 'l>(
        &self,
        id: DecisionId,
        subject: Option<Subject<'e>>,
        decision: &'e Decision<'l>,
    ) -> Event<'e, 'l> {
        Event { id, subject, decision, at: self.clock.now(), latency: Latency::Measured(Duration::ZERO) }
    }

    /// Times a decision that started at `started_at` and was made without waiting.
    #[inline]
    pub(crate) fn in_place(&self, started_at: Timestamp) -> Timing<'_> {
        Timing { at: started_at, latency: Latency::Running { clock: &*self.clock, started_at } }
    }

    /// Times a decision that started at `started_at`.
    pub(crate) fn since(&self, started_at: Timestamp) -> Timing<'_> {
        let at = self.clock.now();
        Timing { at, latency: Latency::Measured(at.since(started_at).into()) }
    }

    /// Notifies the watch of a decision.
    #[inline]
    pub(crate) fn decided(
        &self,
        id: DecisionId,
        subject: Option<Subject<'_>>,
        decision: &Decision<'_>,
        Timing { at, latency }: Timing<'_>,
    ) {
        self.watch.decided(&Event { id, subject, decision, at, latency });
    }
}

/// When a decision was made, and how long it took.
pub(crate) struct Timing<'w> {
    at: Timestamp,
    latency: Latency<'w>,
}

/// A request that waits in line for a slot.
pub(crate) struct InLine<'w> {
    observer: &'w ActiveObserver,
    limit: &'w Limit,
    since: Timestamp,
    is_served: bool,
}

impl InLine<'_> {
    /// Records that the request got its slot.
    pub(crate) const fn serve(&mut self) {
        self.is_served = true;
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let waited = self.observer.now().since(self.since).into();
        self.observer.watch.line_left(self.limit, waited, self.is_served);
    }
}

impl Clone for ActiveObserver {
    fn clone(&self) -> Self {
        Self {
            observer: Arc::clone(&self.observer),
            watch: Arc::clone(&self.watch),
            clock: Arc::clone(&self.clock),
            has_store_clock: self.has_store_clock,
        }
    }
}
