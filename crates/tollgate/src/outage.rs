//! What a request gets while the store gives no answer.
//!
//! Every request is decided, with the store or without. Each limit says in the
//! policy what it does without (`on_outage`):
//!
//! | | |
//! |---|---|
//! | `local` | counted on this node, by its share of the limit (`share`) |
//! | `allow` | passes uncounted, while there is grace (`grace`); then as `local` |
//! | `deny` | refuses the request, whatever the others say, and nothing is charged |
//!
//! What is counted is charged all or not at all, as ever. What was admitted is
//! written down (`ledger`) and charged to the store when it is back
//! ([`Limiter::reconcile`](crate::Limiter::reconcile)). So is what a decision of the store turns out
//! to have cost, where that is known while the store gives no answer (`corrections`).
//!
//! A store that fails is left alone after some failures in a row (`breaker`). One that
//! finds foreign data under a key ([`StoreError::Foreign`]) has answered: the request is
//! decided as above, `allow` as `local` since no outage has begun whose end could be
//! waited for, and to the breaker it is no failure.
//!
//! Deadlines are the store's: whoever talks over a wire knows how to stop waiting, and
//! answers [`StoreError::TimedOut`]. It takes back what lands later, so such a request is
//! counted here like one that was turned down. One that broke off
//! ([`StoreError::Failed`]) may have been charged for good: it is counted here, and the
//! store is not charged with it again. Nothing here waits, spawns or sleeps.
//!
//! A limiter on a store in this process never gets here.
//!
//! Not here: asking the store (`limiter`), wording (`tollgate_http`).

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
pub(crate) use self::corrections::Change;
use self::corrections::Corrections;
pub(crate) use self::fallback::{FallbackOutcome, LocalDecision, Part, denies};
use self::grace::Grace;
pub use self::health::{BreakerState, DegradedDecisions, Health, OutageSettings};
use self::ledger::Ledger;
pub(crate) use self::ledger::{Name, Pass};
use self::log::{Log, REMINDER_INTERVAL};
pub(crate) use self::share::Share;
use self::share::Shares;
use crate::id::DecisionIds;

/// The longest text of an error.
const MAX_ERROR_CHARS: usize = 500;

/// All that limiters on one store share about its outages.
pub(crate) struct Outage {
    clock: SharedClock,
    /// What requests look at instead of taking the lock: [`CLOSED_HEALTHY`], [`CLOSED_FAILING`],
    /// [`HALF_OPEN`], or when the next probe may be sent.
    gate: AtomicU64,
    epoch: AtomicU32,
    /// When grace ends, in microseconds; zero while the store gives answers.
    grace_ends: AtomicU64,
    watch: Mutex<OutageState>,
    rng: DecisionIds,
    shares: Shares,
    /// Made in the first outage: most processes never see one.
    local: OnceLock<MemoryStore<SharedClock>>,
    ledger: Ledger,
    corrections: Corrections,
    /// When a full ledger was last told of, in microseconds.
    warned_of_loss: AtomicU64,
    keys: usize,
    counts: Counts,
}

/// The breaker is closed and nothing has failed since the last answer.
const CLOSED_HEALTHY: u64 = 0;
/// The breaker is closed, and failures are being counted.
const CLOSED_FAILING: u64 = 1;
/// The breaker is half open.
const HALF_OPEN: u64 = u64::MAX;

/// What changes when the store fails or comes back.
struct OutageState {
    breaker: Breaker,
    grace: Grace,
    /// Since when the store gives no answers.
    failing_since: Option<Timestamp>,
    error: Option<String>,
    log: Log,
    warned_of_foreign: Option<Timestamp>,
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

/// Any clock, as one type.
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
    /// It was not sent, or turned down, or will be taken back if it has.
    No,
    /// Nobody knows.
    Perhaps,
}

impl Outage {
    pub(crate) fn new(settings: &OutageSettings, clock: impl Clock) -> Self {
        let clock = SharedClock(Arc::new(clock));
        let now = clock.now();
        let (first, longest) = (settings.first_probe.into(), settings.longest_probe.into());
        Self {
            gate: AtomicU64::new(CLOSED_HEALTHY),
            epoch: AtomicU32::new(0),
            grace_ends: AtomicU64::new(0),
            watch: Mutex::new(OutageState {
                breaker: Breaker::new(settings.failures, first, longest),
                grace: Grace::new(settings.grace.into(), now),
                failing_since: None,
                error: None,
                log: Log::default(),
                warned_of_foreign: None,
            }),
            rng: DecisionIds::default(),
            shares: Shares::new(settings.share, settings.keys),
            local: OnceLock::new(),
            ledger: Ledger::new(settings.keys),
            corrections: Corrections::new(settings.keys),
            warned_of_loss: AtomicU64::new(0),
            keys: settings.keys,
            counts: Counts::default(),
            clock,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How far the wall clock is ahead of that.
    pub(crate) fn wall_ahead(&self) -> i64 {
        self.clock.wall_ahead(self.clock.now())
    }

    /// Leave to ask the store, if there is any.
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

    /// Whether nobody asks the store now: it has failed too often, and no probe is due.
    pub(crate) fn is_left_alone(&self) -> bool {
        match self.gate.load(Ordering::Acquire) {
            CLOSED_HEALTHY | CLOSED_FAILING => false,
            HALF_OPEN => true,
            probe_at => self.now().as_micros() < probe_at,
        }
    }

    /// Whether everybody may ask the store.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.gate.load(Ordering::Acquire), CLOSED_HEALTHY | CLOSED_FAILING)
    }

    #[cold]
    fn ask(&self) -> Option<Ticket> {
        let mut watch = self.watch();
        let ticket = watch.breaker.ask(self.now());
        self.publish(&mut watch);
        ticket
    }

    #[cold]
    fn succeeded(&self, ticket: Ticket) {
        let mut watch = self.watch();
        let closed = watch.breaker.succeeded(ticket, self.now());
        self.publish(&mut watch);
        let line = if closed {
            watch.log.closed(self.counts.degraded().total(), self.ledger.keys(), self.now())
        } else {
            None
        };
        drop(watch);
        if let Some(line) = line {
            line.write();
        }
    }

    #[cold]
    fn failed(&self, ticket: Ticket, error: &StoreError) -> ChargeStatus {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let (now, said) = (self.now(), with_causes(error));
        if let StoreError::Foreign(_) = error {
            self.warn_of_foreign(said, now);
            // It did answer.
            self.succeeded(ticket);
            return ChargeStatus::No;
        }
        let mut watch = self.watch();
        watch.error = Some(said.clone());
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let rng = self.rng.next().0 as u32;
        let opened = watch.breaker.failed(ticket, now, rng);
        let decisions = self.counts.degraded().total();
        let line = if opened {
            self.counts.opened.fetch_add(1, Ordering::Relaxed);
            watch.log.opened(&said, decisions, now)
        } else {
            watch.log.still_open(&said, decisions, now)
        };
        self.publish(&mut watch);
        drop(watch);
        if let Some(line) = line {
            line.write();
        }
        match error {
            StoreError::Refused(_) | StoreError::TimedOut(_) => ChargeStatus::No,
            _ => ChargeStatus::Perhaps,
        }
    }

    /// Says so once in a while: it is about one key, and every request of it.
    fn warn_of_foreign(&self, said: String, now: Timestamp) {
        let mut watch = self.watch();
        let told = watch.warned_of_foreign.is_some_and(|at| now.since(at) < REMINDER_INTERVAL);
        if !told {
            watch.warned_of_foreign = Some(now);
            tracing::warn!(error = said, "a key cannot be counted in the store");
        }
        watch.error = Some(said);
    }

    /// Says once in a while that the ledger has no room: it is about every request.
    #[cold]
    fn warn_of_loss(&self, now: Timestamp) {
        let told = self.warned_of_loss.load(Ordering::Relaxed);
        if told != 0 && now.since(Timestamp::from_micros(told)) < REMINDER_INTERVAL {
            return;
        }
        // Of many at once, one.
        let tell =
            self.warned_of_loss.compare_exchange(told, now.as_micros(), Ordering::Relaxed, Ordering::Relaxed);
        if tell.is_ok() {
            tracing::warn!(
                keys = self.ledger.keys(),
                lost = self.ledger.lost(),
                "no room to remember what the store is to be charged; what is admitted beyond is lost"
            );
        }
    }

    /// Whoever asked has gone without waiting for the answer.
    #[cold]
    fn abandoned(&self, ticket: Ticket) {
        let mut watch = self.watch();
        watch.breaker.abandoned(ticket, self.now());
        self.publish(&mut watch);
    }

    /// Shows requests how things stand. Under the lock, so that what is shown last is true.
    fn publish(&self, watch: &mut OutageState) {
        let now = self.now();
        let gate = match watch.breaker.phase() {
            Phase::Closed { failures: 0 } => CLOSED_HEALTHY,
            Phase::Closed { .. } => CLOSED_FAILING,
            // Neither is a time that a clock shows.
            Phase::Open { probe_at, .. } => probe_at.as_micros().clamp(CLOSED_FAILING + 1, HALF_OPEN - 1),
            Phase::HalfOpen { .. } => HALF_OPEN,
        };
        let grace_ends = if gate == CLOSED_HEALTHY {
            watch.grace.earn(now);
            0
        } else {
            watch.grace.spend(now).as_micros()
        };
        watch.failing_since = if gate == CLOSED_HEALTHY { None } else { watch.failing_since.or(Some(now)) };
        self.grace_ends.store(grace_ends, Ordering::Relaxed);
        self.epoch.store(watch.breaker.epoch(), Ordering::Relaxed);
        // Whoever sees this sees the two above.
        self.gate.store(gate, Ordering::Release);
    }

    /// How the store is doing.
    pub(crate) fn health(&self) -> Health {
        let watch = self.watch();
        Health {
            breaker: match watch.breaker.phase() {
                Phase::Closed { .. } => BreakerState::Closed,
                Phase::Open { .. } => BreakerState::Open,
                Phase::HalfOpen { .. } => BreakerState::HalfOpen,
            },
            answers: watch.breaker.phase() == Phase::Closed { failures: 0 },
            since: watch.failing_since,
            error: watch.error.clone(),
            failures: self.counts.failures.load(Ordering::Relaxed),
            opened: self.counts.opened.load(Ordering::Relaxed),
            degraded: self.counts.degraded(),
            ledger_keys: self.ledger.keys() + self.corrections.len(),
            replayed_units: self.counts.replayed.load(Ordering::Relaxed),
            lost_entries: self.ledger.lost(),
        }
    }

    fn watch(&self) -> MutexGuard<'_, OutageState> {
        // Nothing panics while holding it; if something did, the next change puts it right.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question to the store that was let through. Dropped without an end, it is
/// given up: a caller who leaves does not wedge the breaker.
pub(crate) struct Attempt<'o> {
    outage: &'o Outage,
    ticket: Ticket,
    is_over: bool,
}

impl Attempt<'_> {
    /// The store answered.
    #[inline]
    pub(crate) fn succeeded(mut self) {
        self.is_over = true;
        // Nothing has failed, so there is nothing to forget.
        if self.outage.gate.load(Ordering::Relaxed) != CLOSED_HEALTHY {
            self.outage.succeeded(self.ticket);
        }
    }

    /// The store gave no answer.
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
        Self::new(&OutageSettings::default(), SystemClock::new())
    }
}

/// An error with all its causes in one line of printable text.
fn with_causes(error: &StoreError) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _never_fails = write!(said, ": {error}");
        cause = error.source();
    }
    said.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_ERROR_CHARS).collect()
}
