//! The store in this process: no server, bounded memory, atomic batches.
//!
//! Most states fit one machine word and live in a lock-free table; the rest live in sets behind
//! short locks. Both are bounded at construction.
//!
//! A batch is checked before it is charged, except for its first rule, which is charged first. If a rule
//! refuses, nothing has been written and nothing needs undoing. If all admit, they are charged one by one. If another thread takes the last unit
//! in between, the earlier charges are refunded. In that instant a third thread can see the units
//! as spent: it may be refused, but is never admitted wrongly.
//!
//! The arithmetic is in `tollgate_core`.

// Words, tags and hashes are truncated on purpose throughout.
#![allow(clippy::cast_possible_truncation)]

mod action;
mod floor;
mod floor_map;
mod hash;
mod history;
mod instant;
#[cfg(all(test, loom))]
mod interleavings;
mod line;
mod mark;
mod prior_usage;
mod snapshot;
mod sync;
mod table;
mod transfer;
mod vacancy;
mod wide_table;
mod word;

use std::fmt;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Overdraft, Quota, Rule, RuleId, State, Timestamp, Verdict};

use self::action::Action;
use self::hash::KeyHasher;
use self::history::History;
use self::instant::ClockKind;
use self::prior_usage::{NoPriorUsage, PriorUsage};
pub use self::snapshot::SnapshotError;
use self::sync::{Mutex, lock};
use self::table::Table;
use self::wide_table::{WideKey, WideTable};
use self::word::PackedState;
use crate::clock::{Clock, ClockId, SystemClock};
use crate::store::{Answer, Check, Outcomes, Store, StoreError};
use crate::undo::undo_check;

/// A store in the memory of this process.
///
/// ```
/// # use tollgate_core::{Bucket, Rate, Rule};
/// # use tollgate_store::{Check, MemoryStore};
/// let store = MemoryStore::new(10_000);
/// let rule = Rule::new("api", Bucket::new(Rate::per_minute(1))?);
/// assert!(store.decide_now(&[Check::new(&rule, b"alice", 1)]).admitted);
/// assert!(!store.decide_now(&[Check::new(&rule, b"alice", 1)]).admitted);
/// assert!(store.decide_now(&[Check::new(&rule, b"bob", 1)]).admitted);
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    hasher: KeyHasher,
    table: Table,
    wide: WideTable,
    /// Locks by key for rules with predecessors: the states of a key under all of them change
    /// as one.
    changing: [Mutex<()>; CHANGE_LOCKS],
}

/// The memory use of a store, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Keys with a state that still counts.
    pub keys: usize,
    /// The memory of the tables in bytes.
    pub bytes: usize,
    /// Keys that were evicted while they still counted.
    pub evictions: u64,
}

/// The number of checks that [`MemoryStore::take_many`] has in flight at the same time: enough to hide the
/// memory latency, few enough to stay in the first-level cache.
const PREFETCH_DISTANCE: usize = 16;

/// Locks for keys under rules with predecessors.
const CHANGE_LOCKS: usize = 64;

impl MemoryStore {
    /// Creates a store for at most `max_keys` live keys, on the system clock.
    pub fn new(max_keys: usize) -> Self {
        Self::with_clock(max_keys, SystemClock::new())
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Creates a store for at most `max_keys` live keys, on the given clock.
    pub fn with_clock(max_keys: usize, clock: C) -> Self {
        Self::assemble(max_keys, clock, KeyHasher::random())
    }

    /// Creates a store with a fixed placement of keys, for reproducible tests.
    pub fn with_seed(max_keys: usize, clock: C, seed: u64) -> Self {
        Self::assemble(max_keys, clock, KeyHasher::seeded(seed))
    }

    fn assemble(max_keys: usize, clock: C, hasher: KeyHasher) -> Self {
        let table = Table::new(max_keys, clock.now());
        let changing = std::array::from_fn(|_| Mutex::new(()));
        Self { clock, hasher, table, wide: WideTable::new(max_keys), changing }
    }

    /// Returns the clock of the decisions.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns the current time.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the memory use. Scans the tables, so it is for metrics and not for requests.
    pub fn usage(&self) -> Usage {
        let now = self.now();
        Usage {
            keys: self.table.live(now) + self.wide.live(self.table.instant(now)),
            bytes: self.table.bytes() + self.wide.bytes(),
            evictions: self.evictions(),
        }
    }

    /// Returns the number of keys that were evicted while they still counted. Does not scan the
    /// tables.
    pub fn evictions(&self) -> u64 {
        self.table.evictions() + self.wide.evictions()
    }

    /// Decides a batch synchronously: all checks are charged or none.
    #[inline]
    pub fn decide_now(&self, checks: &[Check<'_>]) -> Answer {
        self.decide_at(checks, self.now())
    }

    /// Decides a batch at a time that the caller has already read.
    #[inline]
    pub fn decide_at(&self, checks: &[Check<'_>], now: Timestamp) -> Answer {
        let mut answer = Answer { admitted: false, at: now, outcomes: Outcomes::new() };
        answer.admitted = self.decide_into(checks, now, &mut answer.outcomes);
        answer
    }

    /// Decides a batch into a buffer of the caller, which is cleared first. Returns whether the
    /// batch was admitted.
    #[inline]
    pub fn decide_into(&self, checks: &[Check<'_>], now: Timestamp, outcomes: &mut Outcomes) -> bool {
        outcomes.clear();
        let now = self.table.clamp_time(now);
        let [check] = checks else { return self.decide_several(checks, now, outcomes) };
        let outcome = self.take(check, now);
        let admitted = admits(check, &outcome);
        outcomes.push(outcome);
        if !admitted && check.count_denied {
            outcomes[0] = self.charge_denied(check, outcome.verdict, now);
        }
        admitted
    }

    /// Decides one check without a batch. The charge for refusals under `count_denied` is applied
    /// by the batch.
    #[inline(always)]
    pub fn take(&self, check: &Check<'_>, now: Timestamp) -> Outcome {
        self.acquire(check, self.hash(check), self.table.clamp_time(now))
    }

    #[inline(always)]
    fn acquire(&self, check: &Check<'_>, hash: u64, now: Timestamp) -> Outcome {
        // Fast path: a known key pays units out of a bucket, as in nearly every request.
        if let (Quota::Bucket(bucket), Amount::Exactly(cost @ 1..)) = (&check.rule.quota, check.amount)
            && check.rule.before.is_none()
            && let Some(bucket) = bucket.in_ticks()
            && let Some(price) = bucket.price(cost)
            && let Some((tat, paid)) = self.table.pay(hash, bucket, price, now)
            && let Some(outcome) = bucket.describe(tat, paid, cost, now)
        {
            return outcome;
        }
        self.act(check.rule, check.key, hash, Action::Acquire(check.amount), now)
    }

    /// Decides many checks independently and passes each outcome to `outcome`.
    ///
    /// It is faster than calls of [`take`](Self::take) for many keys, because the memory of one key
    /// is fetched while another is processed.
    pub fn take_many(&self, checks: &[Check<'_>], now: Timestamp, mut outcome: impl FnMut(usize, Outcome)) {
        let (mut hashes, now) = ([0; PREFETCH_DISTANCE], self.table.clamp_time(now));
        for (chunk, start) in checks.chunks(PREFETCH_DISTANCE).zip((0..).step_by(PREFETCH_DISTANCE)) {
            for (hash, check) in hashes.iter_mut().zip(chunk) {
                *hash = self.hash(check);
                self.table.prefetch(*hash);
            }
            for (index, (hash, check)) in hashes.iter().zip(chunk).enumerate() {
                outcome(start + index, self.acquire(check, *hash, now));
            }
        }
    }

    /// Adjusts one key, and returns its state after that.
    pub fn adjust_now(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Outcome {
        let hash = self.hasher.place(rule.id, key);
        self.act(rule, key, hash, Action::Adjust(adjustment), self.table.clamp_time(self.now()))
    }

    fn decide_several(&self, checks: &[Check<'_>], now: Timestamp, outcomes: &mut Outcomes) -> bool {
        let (mut hashes, mut has_slots) = (SmallVec::<[u64; 8]>::new(), false);
        for check in checks {
            let hash = self.hash(check);
            self.table.prefetch(hash);
            hashes.push(hash);
            has_slots |= matches!(check.amount, Amount::Slot(_));
        }
        let each = || checks.iter().zip(&hashes);
        let refused = |outcomes: &[Outcome]| checks.iter().zip(outcomes).any(|(it, out)| !admits(it, out));
        // The first check is charged first, so it decides by its charge: if it refuses, nothing has been written.
        let has_room = |(check, &hash): (&Check<'_>, &u64)| !check.binding || self.has_room(check, hash, now);
        let admitted = if !has_slots && each().skip(1).all(has_room) {
            self.acquire_all(checks, &hashes, now, outcomes)
        } else {
            each().for_each(|(check, &hash)| outcomes.push(self.peek(check, hash, now)));
            if !refused(outcomes) {
                self.acquire_slots_last(checks, &hashes, now, outcomes);
            }
            !refused(outcomes)
        };
        if !admitted {
            for ((check, &hash), outcome) in each().zip(&mut *outcomes) {
                if check.count_denied {
                    *outcome = self.charge_denied(check, outcome.verdict, now);
                } else if outcome.is_admitted() {
                    *outcome = self.state(check, hash, now);
                }
            }
        }
        admitted
    }

    /// Charges a batch in its order. All checks after the first had room a moment ago. Returns whether all were charged.
    fn acquire_all(
        &self,
        checks: &[Check<'_>],
        hashes: &[u64],
        now: Timestamp,
        outcomes: &mut Outcomes,
    ) -> bool {
        for (at, (check, &hash)) in checks.iter().zip(hashes).enumerate() {
            outcomes.push(self.acquire(check, hash, now));
            if !admits(check, &outcomes[at]) {
                // Another thread took the units since the check.
                let met = checks.iter().zip(&*outcomes).take(at);
                // In reverse: a queue takes back only its last place.
                met.rev().for_each(|(check, outcome)| self.give_back(check, outcome, now));
                let rest = checks.iter().zip(hashes).skip(at + 1);
                outcomes.extend(rest.map(|(check, &hash)| self.peek(check, hash, now)));
                return false;
            }
        }
        true
    }

    /// Charges a batch that also takes slots. Slots come last: a unit can be refunded without a
    /// trace, but a slot that its owner already held and renewed would be lost.
    fn acquire_slots_last(
        &self,
        checks: &[Check<'_>],
        hashes: &[u64],
        now: Timestamp,
        outcomes: &mut Outcomes,
    ) {
        let of_kind = |slots: bool| {
            (0..checks.len()).filter(move |&at| matches!(checks[at].amount, Amount::Slot(_)) == slots)
        };
        let mut met = SmallVec::<[usize; 8]>::new();
        for at in of_kind(false).chain(of_kind(true)) {
            outcomes[at] = self.acquire(&checks[at], hashes[at], now);
            if !admits(&checks[at], &outcomes[at]) {
                met.iter().rev().for_each(|&at| self.give_back(&checks[at], &outcomes[at], now));
                return;
            }
            met.push(at);
        }
    }

    fn give_back(&self, check: &Check<'_>, outcome: &Outcome, now: Timestamp) {
        if let Some(undo) = undo_check(check.amount, outcome, false, now) {
            self.act(check.rule, check.key, self.hash(check), Action::Adjust(undo), now);
        }
    }

    /// Charges a rule for a refused request, and returns an outcome with its original verdict: a
    /// refusal stays a refusal regardless of other threads.
    fn charge_denied(&self, check: &Check<'_>, verdict: Verdict, now: Timestamp) -> Outcome {
        let hash = self.hash(check);
        let units = match check.amount {
            Amount::Exactly(units) | Amount::UpTo(units) => units,
            Amount::Slot(_) | Amount::Lease(_) => 0,
        };
        let charge = Action::Adjust(Adjustment::Charge { units, overdraft: Overdraft::None });
        let charged = self.act(check.rule, check.key, hash, charge, now);
        match verdict {
            Verdict::Admitted { .. } => charged,
            Verdict::Never => Outcome { verdict, ..charged },
            // The charge may have made the wait longer.
            Verdict::Refused { .. } => match self.peek(check, hash, now) {
                again if again.is_admitted() => Outcome { verdict, ..charged },
                again => again,
            },
        }
    }

    /// Returns whether a check would be admitted, without an outcome.
    #[inline]
    fn has_room(&self, check: &Check<'_>, hash: u64, now: Timestamp) -> bool {
        // As in `acquire`, without the payment and the description.
        if let (Quota::Bucket(bucket), Amount::Exactly(cost @ 1..)) = (&check.rule.quota, check.amount)
            && check.rule.before.is_none()
            && let Some(bucket) = bucket.in_ticks()
            && let Some(price) = bucket.price(cost)
            && let Some(tat) = self.table.tat(hash)
        {
            return bucket.affords(tat, price, now);
        }
        self.peek(check, hash, now).is_admitted()
    }

    /// Returns the outcome that a check would have, without charging it.
    #[inline]
    fn peek(&self, check: &Check<'_>, hash: u64, now: Timestamp) -> Outcome {
        // As in `acquire`, without the payment.
        if let (Quota::Bucket(bucket), Amount::Exactly(cost @ 1..)) = (&check.rule.quota, check.amount)
            && check.rule.before.is_none()
            && let Some(bucket) = bucket.in_ticks()
            && let Some(price) = bucket.price(cost)
            && let Some(tat) = self.table.tat(hash)
            && let Some(outcome) = bucket.describe(tat, bucket.affords(tat, price, now), cost, now)
        {
            return outcome;
        }
        self.act(check.rule, check.key, hash, Action::Peek(check.amount), now)
    }

    /// Returns the outcome of a check that charges nothing.
    #[inline]
    fn state(&self, check: &Check<'_>, hash: u64, now: Timestamp) -> Outcome {
        // As in `acquire`, without the payment. A cost of zero is always admitted.
        if let Quota::Bucket(bucket) = &check.rule.quota
            && check.rule.before.is_none()
            && let Some(bucket) = bucket.in_ticks()
            && let Some(tat) = self.table.tat(hash)
            && let Some(outcome) = bucket.describe(tat, true, 0, now)
        {
            return outcome;
        }
        self.act(check.rule, check.key, hash, Action::Peek(Amount::Exactly(0)), now)
    }

    /// Runs `action` on one key, in the table that holds the states of its rule.
    #[inline(never)]
    fn act(&self, rule: &Rule, key: &[u8], hash: u64, act: Action, now: Timestamp) -> Outcome {
        self.table.set_wall_ahead(self.clock.wall_ahead(now));
        if rule.before.is_none() {
            return self.act_after(rule, key, hash, act, now, &NoPriorUsage);
        }
        // Otherwise another request could find the present state charged and the predecessor's not
        // yet, and lower the present one to it.
        let lock_index = self.hasher.place(RuleId(0), key) as usize % CHANGE_LOCKS;
        let _changing = lock(&self.changing[lock_index]);
        let history = History::new(self, rule, key, now);
        let outcome = self.act_after(rule, key, hash, act, now, &history);
        history.follow(act, &outcome);
        outcome
    }

    fn act_after(
        &self,
        rule: &Rule,
        key: &[u8],
        hash: u64,
        act: Action,
        now: Timestamp,
        past: &impl PriorUsage,
    ) -> Outcome {
        match &rule.quota {
            Quota::Bucket(bucket) if bucket.fits() => self.table.run(hash, bucket, act, now, past),
            Quota::FixedWindow(window) if window.fits() => {
                self.table.run(hash, window, act.shifted(self.table.wall_ahead()), now, past)
            }
            quota => {
                let at = self.table.instant(now);
                let act = act.shifted(at.ahead(ClockKind::of(quota)));
                self.wide.run(self.wide_key(rule.id, key, hash), quota, act, at, past)
            }
        }
    }

    /// Returns the state of a key under a rule, if it has one, in monotonic time.
    fn read(&self, id: RuleId, quota: &Quota, key: &[u8], now: Timestamp) -> Option<State> {
        let hash = self.hasher.place(id, key);
        match quota {
            Quota::Bucket(bucket) if bucket.fits() => {
                self.table.read_steady(hash, bucket, now).map(State::Bucket)
            }
            Quota::FixedWindow(window) if window.fits() => {
                self.table.read_steady(hash, window, now).map(State::FixedWindow)
            }
            _ => self.wide.read_steady(self.wide_key(id, key, hash), quota, self.table.instant(now)),
        }
    }

    /// Returns a key's state under a rule only if the store holds it: a floor is not a state
    /// of the key. In the time of the clock that never steps.
    fn read_stored(&self, id: RuleId, quota: &Quota, key: &[u8], now: Timestamp) -> Option<State> {
        let hash = self.hasher.place(id, key);
        match quota {
            Quota::Bucket(bucket) if bucket.fits() => {
                self.table.read_stored(hash, bucket, now).map(State::Bucket)
            }
            Quota::FixedWindow(window) if window.fits() => {
                self.table.read_stored(hash, window, now).map(State::FixedWindow)
            }
            _ => self.wide.read_stored(self.wide_key(id, key, hash), self.table.instant(now)),
        }
    }

    fn wide_key(&self, rule: RuleId, key: &[u8], hash: u64) -> WideKey {
        WideKey { hashes: [hash, self.hasher.identity(rule, key)], rule }
    }

    #[inline]
    fn hash(&self, check: &Check<'_>) -> u64 {
        self.hasher.place(check.rule.id, check.key)
    }
}

fn admits(check: &Check<'_>, outcome: &Outcome) -> bool {
    outcome.is_admitted() || !check.binding
}

impl<C> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.table.bytes() + self.wide.bytes();
        f.debug_struct("MemoryStore").field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn never_waits(&self) -> bool {
        true
    }

    fn decide(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        std::future::ready(Ok(self.decide_now(checks)))
    }

    #[inline]
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        self.try_decide_at(checks, self.now(), outcomes)
    }

    #[inline]
    fn try_decide_at(
        &self,
        checks: &[Check<'_>],
        now: Timestamp,
        outcomes: &mut Outcomes,
    ) -> Option<(bool, Timestamp)> {
        Some((self.decide_into(checks, now, outcomes), now))
    }

    fn clock_id(&self) -> Option<ClockId> {
        self.clock.id()
    }

    #[inline]
    fn prefetch(&self, rule: &Rule, key: &[u8]) {
        self.table.prefetch(self.hasher.place(rule.id, key));
    }

    #[inline]
    fn wall_ahead(&self, at: Timestamp) -> i64 {
        self.clock.wall_ahead(at)
    }

    fn adjust(
        &self,
        rule: &Rule,
        key: &[u8],
        adjustment: Adjustment,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        std::future::ready(Ok(self.adjust_now(rule, key, adjustment)))
    }

    fn try_adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Option<Outcome> {
        Some(self.adjust_now(rule, key, adjustment))
    }

    fn is_shared(&self) -> bool {
        false
    }
}
