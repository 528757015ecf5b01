//! A shard of the simulated store: real arithmetic on a clock of its own.
//!
//! The in-memory store decides as Redis does, to the microsecond (`tollgate-redis/tests/store`). A shard adds the parts
//! of a server: it recognizes the ids of adjustments, stops, pauses, and starts from the state of a replica.

use std::collections::HashMap;

use tollgate::store::{ADJUSTMENT_ID_LIFETIME, AdjustmentId, Answer, Check};
use tollgate::{Adjustment, Amount, ManualClock, MemoryStore, Span, Timestamp};

use super::clock::{SimClock, TrueTime};
use super::defect::Defect;
use super::wire::{Body, CallId, OwnedCheck, Reply};

/// The number of keys of a shard.
const MAX_KEYS: usize = 1_024;

/// A shard.
pub(super) struct Shard {
    seed: u64,
    store: MemoryStore<ManualClock>,
    pub(super) clock: SimClock,
    /// The ids that were applied, with the time of the store.
    applied: HashMap<u128, u64>,
    /// The calls that were executed, to build the state of a replica. `None`: the plan has no replica.
    journal: Option<Vec<JournalEntry>>,
    defect: Option<Defect>,
    pub(super) is_up: bool,
    /// The faults that pause it, and the calls that arrived meanwhile.
    pub(super) paused_by: Vec<usize>,
    pub(super) waiting: Vec<CallId>,
}

/// A call that was executed.
pub(super) struct JournalEntry {
    pub(super) at: TrueTime,
    shown: u64,
    is_far: bool,
    pub(super) body: Body,
    pub(super) reply: Reply,
}

impl Shard {
    pub(super) fn new(seed: u64, has_replica: bool, defect: Option<Defect>) -> Self {
        let clock = SimClock::new(0);
        let store = MemoryStore::with_seed(MAX_KEYS, clock.shown(), seed);
        Self {
            seed,
            store,
            clock,
            applied: HashMap::new(),
            journal: has_replica.then(Vec::new),
            defect,
            is_up: true,
            paused_by: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Executes a call of this region or of another. Returns the reply, and whether it had an effect: a repeated
    /// adjustment has none.
    pub(super) fn execute(&mut self, now: TrueTime, body: &Body, is_far: bool) -> (Reply, bool) {
        let shown = self.clock.sync(now);
        let (reply, is_effective) = self.apply(shown, body, is_far);
        if let Some(journal) = &mut self.journal {
            journal.push(JournalEntry { at: now, shown, is_far, body: body.clone(), reply: reply.clone() });
        }
        (reply, is_effective)
    }

    fn apply(&mut self, shown: u64, body: &Body, is_far: bool) -> (Reply, bool) {
        match body {
            Body::Decide(checks) => {
                let mut checks: Vec<_> = checks.iter().map(OwnedCheck::check).collect();
                if self.defect == Some(Defect::LeaseWithoutPad) {
                    for check in &mut checks {
                        if let Amount::Lease(request) = &mut check.amount {
                            request.ttl = Span::ZERO;
                        }
                    }
                }
                let answer = self.store.decide_at(&checks, Timestamp::from_micros(shown));
                if is_far && self.defect == Some(Defect::LentTwice) {
                    self.uncharge(&checks, &answer);
                }
                (Reply::Decided(answer), true)
            }
            Body::Change { rule, key, adjustment, id } => {
                let is_repeated = id.is_some_and(|id| self.is_repeated(id, shown));
                let adjustment = if is_repeated { Adjustment::Grant { units: 0 } } else { *adjustment };
                let adjustment = match adjustment {
                    Adjustment::ReturnLease { units, ttl, .. }
                        if self.defect == Some(Defect::LateReturnsAccepted) =>
                    {
                        let taken_at = Timestamp::from_micros(shown);
                        Adjustment::ReturnLease { units, taken_at, ttl }
                    }
                    other => other,
                };
                (Reply::Changed(self.store.adjust_now(rule, key, adjustment)), !is_repeated)
            }
        }
    }

    /// Takes leases back that were granted a moment ago.
    fn uncharge(&self, checks: &[Check<'_>], answer: &Answer) {
        for (check, outcome) in checks.iter().zip(&answer.outcomes).filter(|_| answer.admitted) {
            if let (Amount::Lease(request), Ok(units @ 1..)) = (check.amount, u32::try_from(outcome.units()))
            {
                let back = Adjustment::ReturnLease { units, taken_at: answer.at, ttl: request.ttl };
                self.store.adjust_now(check.rule, check.key, back);
            }
        }
    }

    /// Returns whether an adjustment was applied before, and remembers it.
    fn is_repeated(&mut self, id: AdjustmentId, shown: u64) -> bool {
        if self.defect == Some(Defect::IdsForgotten) {
            return false;
        }
        let before = self.applied.get(&id.0).copied();
        if before.is_some_and(|at| shown.saturating_sub(at) < ADJUSTMENT_ID_LIFETIME.as_micros()) {
            return true;
        }
        self.applied.insert(id.0, shown);
        false
    }

    /// Forgets everything.
    pub(super) fn empty(&mut self) {
        let journal = self.journal.take().map(|_| Vec::new());
        self.rebuild(journal);
    }

    /// Continues with the state of a replica, which has the calls until `heard`. Returns the calls that it has not.
    pub(super) fn fail_over(&mut self, heard: TrueTime) -> Vec<JournalEntry> {
        let mut kept = self.journal.take().unwrap_or_default();
        let forgotten = kept.split_off(kept.partition_point(|entry| entry.at <= heard));
        self.rebuild(Some(kept));
        forgotten
    }

    fn rebuild(&mut self, journal: Option<Vec<JournalEntry>>) {
        // A store must not be older than the times that it may see, so its clock starts early.
        self.clock.shown().set(SimClock::new(0).shown_now());
        self.store = MemoryStore::with_seed(MAX_KEYS, self.clock.shown(), self.seed);
        self.applied.clear();
        for entry in journal.iter().flatten() {
            self.clock.shown().set(Timestamp::from_micros(entry.shown));
            self.apply(entry.shown, &entry.body, entry.is_far);
        }
        self.journal = journal;
    }

    /// Returns whether the shard would refuse one of these checks now. Nothing is charged.
    pub(super) fn refuses(&mut self, now: TrueTime, checks: &[OwnedCheck]) -> bool {
        let shown = Timestamp::from_micros(self.clock.sync(now));
        checks.iter().any(|owned| {
            let check = owned.check();
            // More than the capacity is never admitted, so the pair charges nothing.
            let never = Amount::Exactly(check.rule.quota.capacity() + 1);
            let pair = [check, Check { amount: never, binding: true, ..check }];
            !self.store.decide_at(&pair, shown).outcomes[0].is_admitted()
        })
    }
}
