//! Decisions while the store gives no answer.
//!
//! Every request is decided, with the store or without. Each limit defines in the policy its
//! behavior without the store (`on_outage`):
//!
//! | | |
//! |---|---|
//! | `local` | counted on this node, by its share of the limit (`share`) |
//! | `allow` | passes uncounted during the grace period (`grace`); then as `local`. A shedder passes uncounted for the whole outage |
//! | `deny` | refuses the request regardless of other limits, and nothing is charged |
//!
//! Limits that count are charged all or none, as always. Admitted usage is recorded (`ledger`) and
//! charged to the store when it is back ([`Limiter::reconcile`](crate::Limiter::reconcile)).
//! Settlements of decisions that the store made are deferred in the same way (`corrections`), also if
//! the store may have applied them: it recognizes them by an id.
//!
//! After several consecutive failures the store is no longer called (`breaker`). A store that finds
//! foreign data under a key ([`StoreError::Foreign`]), that is moving a key between its nodes
//! ([`StoreError::Migrating`]), or that has lost the node of a key ([`StoreError::Part`]), has answered:
//! the request is decided as above, with `allow` as `local` because no outage of the whole store has begun
//! whose end could be awaited, and the breaker does not count a failure.
//!
//! Stores own their deadlines: a store that uses a network stops waiting and returns
//! [`StoreError::TimedOut`]. It compensates charges that arrive later, so such a request is counted
//! here like one that the store rejected. A request with a broken connection
//! ([`StoreError::Failed`]) may have been charged: it is counted here, and the store is not charged
//! with it again. This module does not wait, spawn or sleep.
//!
//! A limiter on a store in this process never uses this module.
//!
//! Calls to the store are in `limiter`, formatting in `tollgate_http`.

mod breaker;
mod corrections;
mod fallback;
mod grace;
mod health;
mod ledger;
mod log;
mod replay;
mod share;

use std::error::Error;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::Timestamp;
use tollgate_store::{Clock, MemoryStore, StoreError, SystemClock};

use self::breaker::{Breaker, Phase, Ticket};
use self::corrections::Corrections;
pub(crate) use self::corrections::{Change, Lane};
pub(crate) use self::fallback::{FallbackOutcome, LocalDecision, Part, denies};
use self::grace::Grace;
pub use self::health::{BreakerState, DegradedDecisions, Health, OutageSettings};
use self::ledger::Ledger;
pub(crate) use self::ledger::{Name, Pass};
use self::log::{Log, REMINDER_INTERVAL};
pub(crate) use self::share::Share;
use self::share::Shares;
use crate::id::{DecisionId, DecisionIds};
use crate::randomness::Randomness;

/// The longest text of an error, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// The outage state that all limiters on one store share.
pub(crate) struct Outage {
    clock: SharedClock,
    /// The phase as requests read it without the lock: [`CLOSED_HEALTHY`], [`CLOSED_FAILING`],
    /// [`HALF_OPEN`], or the time of the next probe.
    gate: AtomicU64,
    epoch: AtomicU32,
    /// The end of the grace period in microseconds; zero while the store answers.
    grace_ends: AtomicU64,
    state: Mutex<OutageState>,
    rng: DecisionIds,
    shares: Shares,
    /// Created in the first outage: most processes never have one.
    local: OnceLock<MemoryStore<SharedClock>>,
    ledger: Ledger,
    corrections: Corrections,
    /// The time of the last warning about a full ledger, in microseconds.
    warned_of_loss: AtomicU64,
    keys: usize,
    randomness: Randomness,
    counts: Counts,
}

/// The breaker is closed and nothing has failed since the last answer.
const CLOSED_HEALTHY: u64 = 0;
/// The breaker is closed, and failures are being counted.
const CLOSED_FAILING: u64 = 1;
/// The breaker is half open.
const HALF_OPEN: u64 = u64::MAX;

/// The state that changes when the store fails or recovers.
struct OutageState {
    breaker: Breaker,
    grace: Grace,
    /// The start of the outage, if the store does not answer.
    failing_since: Option<Timestamp>,
    error: Option<String>,
    log: Log,
    warned_of_key: Option<Timestamp>,
}

#[derive(Default)]
struct Counts {
    failures: AtomicU64,
    opened: AtomicU64,
    local: AtomicU64,
    allow: AtomicU64,
    deny: AtomicU64,
    replayed: AtomicU64,
}

impl Counts {
    fn degraded(&self) -> DegradedDecisions {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DegradedDecisions { local: read(&self.local), allow: read(&self.allow), deny: read(&self.deny) }
    }
}

/// A type-erased clock.
#[derive(Clone)]
struct SharedClock(Arc<dyn Clock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wall_ahead(&self, now: Timestamp) -> i64 {
        self.0.wall_ahead(now)
    }
}

/// Whether a charge may have reached the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeStatus {
    /// It was not sent, was rejected, or will be compensated.
    NotCharged,
    /// It is unknown.
    Unknown,
}

impl ChargeStatus {
    fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Refused(_)
            | StoreError::TimedOut(_)
            | StoreError::Foreign(_)
            | StoreError::Migrating(_) => Self::NotCharged,
            StoreError::Part(error) => Self::of(error),
            _ => Self::Unknown,
        }
    }
}

impl Outage {
    pub(crate) fn new(settings: &OutageSettings, clock: impl Clock, randomness: Randomness) -> Self {
        let clock = SharedClock(Arc::new(clock));
        let now = clock.now();
        let (first, longest) = (settings.first_probe.into(), settings.longest_probe.into());
        Self {
            gate: AtomicU64::new(CLOSED_HEALTHY),
            epoch: AtomicU32::new(0),
            grace_ends: AtomicU64::new(0),
            state: Mutex::new(OutageState {
                breaker: Breaker::new(settings.failures, first, longest),
                grace: Grace::new(settings.grace.into(), now),
                failing_since: None,
                error: None,
                log: Log::default(),
                warned_of_key: None,
            }),
            rng: DecisionIds::new(randomness, 1),
            shares: Shares::new(settings.share, settings.keys),
            local: OnceLock::new(),
            ledger: Ledger::new(settings.keys, randomness),
            corrections: Corrections::new(settings.keys),
            warned_of_loss: AtomicU64::new(0),
            keys: settings.keys,
            randomness,
            counts: Counts::default(),
            clock,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns a random id for adjustments that belong to no decision with an id.
    pub(crate) fn next_id(&self) -> DecisionId {
        self.rng.next()
    }

    /// Returns the microseconds that the wall clock is ahead of this node's clock.
    pub(crate) fn wall_ahead(&self) -> i64 {
        self.clock.wall_ahead(self.clock.now())
    }

    /// Returns an attempt to call the store, if the breaker permits it.
    #[inline]
    pub(crate) fn attempt(&self) -> Option<Attempt<'_>> {
        let ticket = match self.gate.load(Ordering::Acquire) {
            CLOSED_HEALTHY | CLOSED_FAILING => Breaker::ordinary(self.epoch.load(Ordering::Relaxed)),
            HALF_OPEN => return None,
            probe_at if self.now().as_micros() < probe_at => return None,
            _ => self.ask()?,
        };
        Some(Attempt { outage: self, ticket, is_over: false })
    }

    /// Returns whether the breaker is open and no probe is due.
    pub(crate) fn is_breaker_open(&self) -> bool {
        match self.gate.load(Ordering::Acquire) {
            CLOSED_HEALTHY | CLOSED_FAILING => false,
            HALF_OPEN => true,
            probe_at => self.now().as_micros() < probe_at,
        }
    }

    /// Returns whether the breaker is closed.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.gate.load(Ordering::Acquire), CLOSED_HEALTHY | CLOSED_FAILING)
    }

    #[cold]
    fn ask(&self) -> Option<Ticket> {
        let mut state = self.lock_state();
        let ticket = state.breaker.ask(self.now());
        self.publish(&mut state);
        ticket
    }

    #[cold]
    fn succeeded(&self, ticket: Ticket) {
        let mut state = self.lock_state();
        let closed = state.breaker.succeeded(ticket, self.now());
        self.publish(&mut state);
        let line = if closed {
            state.log.closed(self.counts.degraded().total(), self.ledger.keys(), self.now())
        } else {
            None
        };
        drop(state);
        if let Some(line) = line {
            line.write();
        }
    }

    #[cold]
    fn failed(&self, ticket: Ticket, error: &StoreError) -> ChargeStatus {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let (now, cause) = (self.now(), with_causes(error));
        if let StoreError::Foreign(_) | StoreError::Migrating(_) | StoreError::Part(_) = error {
            self.warn_of_key(cause, now);
            // The store did answer.
            self.succeeded(ticket);
            return ChargeStatus::of(error);
        }
        let mut state = self.lock_state();
        state.error = Some(cause.clone());
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let rng = self.rng.next().0 as u32;
        let opened = state.breaker.failed(ticket, now, rng);
        let decisions = self.counts.degraded().total();
        let line = if opened {
            self.counts.opened.fetch_add(1, Ordering::Relaxed);
            state.log.opened(&cause, decisions, now)
        } else {
            state.log.still_open(&cause, decisions, now)
        };
        self.publish(&mut state);
        drop(state);
        if let Some(line) = line {
            line.write();
        }
        ChargeStatus::of(error)
    }

    /// Logs a key that the store cannot count at most once per interval: it concerns every request for
    /// that key.
    fn warn_of_key(&self, cause: String, now: Timestamp) {
        let mut state = self.lock_state();
        let is_recent = state.warned_of_key.is_some_and(|at| now.since(at) < REMINDER_INTERVAL);
        if !is_recent {
            state.warned_of_key = Some(now);
            tracing::warn!(error = cause, "a key cannot be counted in the store");
        }
        state.error = Some(cause);
    }

    /// Logs a full ledger at most once per interval: it concerns every request.
    #[cold]
    fn warn_of_loss(&self, now: Timestamp) {
        let warned_at = self.warned_of_loss.load(Ordering::Relaxed);
        if warned_at != 0 && now.since(Timestamp::from_micros(warned_at)) < REMINDER_INTERVAL {
            return;
        }
        // Only one of several concurrent threads logs.
        let claimed = self.warned_of_loss.compare_exchange(
            warned_at,
            now.as_micros(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if claimed.is_ok() {
            tracing::warn!(
                keys = self.ledger.keys(),
                lost = self.ledger.lost(),
                "the ledger is full; usage admitted from now on is not charged to the store"
            );
        }
    }

    /// Ends an attempt whose caller left without waiting for the answer.
    #[cold]
    fn abandoned(&self, ticket: Ticket) {
        let mut state = self.lock_state();
        state.breaker.abandoned(ticket, self.now());
        self.publish(&mut state);
    }

    /// Publishes the phase to requests. Called under the lock, so that the last value is the
    /// current one.
    fn publish(&self, state: &mut OutageState) {
        let now = self.now();
        let gate = match state.breaker.phase() {
            Phase::Closed { failures: 0 } => CLOSED_HEALTHY,
            Phase::Closed { .. } => CLOSED_FAILING,
            // The clamped values are never times of a real clock.
            Phase::Open { probe_at, .. } => probe_at.as_micros().clamp(CLOSED_FAILING + 1, HALF_OPEN - 1),
            Phase::HalfOpen { .. } => HALF_OPEN,
        };
        let grace_ends = if gate == CLOSED_HEALTHY {
            state.grace.earn(now);
            0
        } else {
            state.grace.spend(now).as_micros()
        };
        state.failing_since = if gate == CLOSED_HEALTHY { None } else { state.failing_since.or(Some(now)) };
        self.grace_ends.store(grace_ends, Ordering::Relaxed);
        self.epoch.store(state.breaker.epoch(), Ordering::Relaxed);
        // Release: a thread that reads this value also reads the two above.
        self.gate.store(gate, Ordering::Release);
    }

    /// Returns the health of the store.
    pub(crate) fn health(&self) -> Health {
        let state = self.lock_state();
        Health {
            breaker: match state.breaker.phase() {
                Phase::Closed { .. } => BreakerState::Closed,
                Phase::Open { .. } => BreakerState::Open,
                Phase::HalfOpen { .. } => BreakerState::HalfOpen,
            },
            answers: state.breaker.phase() == Phase::Closed { failures: 0 },
            since: state.failing_since,
            error: state.error.clone(),
            failures: self.counts.failures.load(Ordering::Relaxed),
            opened: self.counts.opened.load(Ordering::Relaxed),
            degraded: self.counts.degraded(),
            ledger_keys: self.ledger.keys() + self.corrections.len(),
            replayed_units: self.counts.replayed.load(Ordering::Relaxed),
            lost_entries: self.ledger.lost(),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, OutageState> {
        // No code panics while it holds the lock; if it did, the next change would repair the
        // state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call to the store that the breaker permitted. Dropping it without a result abandons it, so
/// that a caller that leaves does not block the breaker.
pub(crate) struct Attempt<'o> {
    outage: &'o Outage,
    ticket: Ticket,
    is_over: bool,
}

impl Attempt<'_> {
    /// Records that the store answered.
    #[inline]
    pub(crate) fn succeeded(mut self) {
        self.is_over = true;
        // Without earlier failures there is nothing to reset.
        if self.outage.gate.load(Ordering::Relaxed) != CLOSED_HEALTHY {
            self.outage.succeeded(self.ticket);
        }
    }

    /// Records that the store gave no answer.
    pub(crate) fn failed(mut self, error: &StoreError) -> ChargeStatus {
        self.is_over = true;
        self.outage.failed(self.ticket, error)
    }
}

impl Drop for Attempt<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_over && self.ticket.is_probe() {
            self.outage.abandoned(self.ticket);
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        Self::new(&OutageSettings::default(), SystemClock::new(), Randomness::System)
    }
}

/// Formats an error with all its causes as one line of printable text.
fn with_causes(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _never_fails = write!(text, ": {error}");
        cause = error.source();
    }
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_ERROR_CHARS).collect()
}
