//! The store around a store.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use tollgate_core::{Adjustment, Amount, ChargeTimes, Outcome, Rule, Span, Timestamp, Verdict};
use tollgate_store::{
    Answer, Check, Clock, Holding, Outcomes, Repeatable, Store, StoreError, SystemClock, join_all,
};

use crate::far::{FarStores, is_exact, ttl};
use crate::lot::Tick;
use crate::place::Place;
use crate::plan::{Plan, leasable_units, with_held};
use crate::sync::Ordering;
use crate::table::Table;

/// A store that decides hot keys on this node, from units that it leased from `S`.
///
/// Rules without [`Rule::lease`] are passed to the inner store unchanged. See the
/// [crate](crate) for the mechanism, and `docs/leases.md` for the contract.
///
/// Leases are renewed and returned by [`tend`](Self::tend), which the caller runs when it is
/// [`due`](Self::due). Without it, leases end by themselves, and requests take new ones.
///
/// ```
/// # use tollgate_core::{Bucket, QuotaError, Rate, Rule, Span};
/// # use tollgate_lease::Leased;
/// # use tollgate_store::{Check, MemoryStore, Store};
/// # pollster::block_on(async {
/// let store = Leased::new(MemoryStore::new(1_000));
/// let rule = Rule::new("api", Bucket::new(Rate::per_second(1_000))?).leased_for(Some(Span::from_millis(25)));
/// assert!(store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted);
/// store.drain().await;
/// # Ok::<(), QuotaError>(()) }).unwrap();
/// ```
pub struct Leased<S, C = SystemClock> {
    pub(crate) inner: S,
    clock: C,
    started_at: Timestamp,
    pub(crate) table: Table,
    pub(crate) counts: Counts,
    /// How far the clock of the store is ahead of the local clock, in microseconds.
    ahead: AtomicI64,
    /// Whether no lease is taken anymore.
    pub(crate) is_draining: AtomicBool,
    due: Due,
    pub(crate) far: FarStores<S>,
}

/// Whether work is due before the next regular visit of `tend`.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) is_due: AtomicBool,
    pub(crate) waker: Mutex<Option<Waker>>,
}

/// A counter of units or calls.
#[derive(Debug, Default)]
pub(crate) struct Count(std::sync::atomic::AtomicU64);

impl Count {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, std::sync::atomic::Ordering::Relaxed);
    }

    fn subtract(&self, number: u64) {
        self.0.fetch_sub(number, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the largest number so far, with this one.
    fn raise(&self, number: u64) -> u64 {
        self.0.fetch_max(number, std::sync::atomic::Ordering::Relaxed).max(number)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The counters of a store, as they are counted.
///
/// Spent units are not counted: a request spends by one compare-and-swap. They are the leased units
/// that are not returned, expired, held or being returned.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) leased: Count,
    pub(crate) returned: Count,
    pub(crate) expired: Count,
    pub(crate) calls: Count,
    /// The units that are out of their lot, and not yet returned.
    returning: Count,
    /// The largest number of spent units that was shown: a counter never falls.
    spent: Count,
}

/// Units that were taken out of a lot, to return them to the store. Dropping it counts them as
/// expired: they end with their lease.
pub(crate) struct Returning<'l> {
    pub(crate) adjustment: Adjustment,
    units: u64,
    counts: &'l Counts,
    is_returned: bool,
}

impl<'l> Returning<'l> {
    pub(crate) fn new(units: u32, (taken_at, ttl): (Timestamp, Span), counts: &'l Counts) -> Self {
        counts.returning.add(units.into());
        let adjustment = Adjustment::ReturnLease { units, taken_at, ttl };
        Self { adjustment, units: units.into(), counts, is_returned: false }
    }

    /// Records that the store has them.
    pub(crate) fn conclude(mut self) {
        self.is_returned = true;
    }

    /// Returns the adjustment, which is made later. The caller reports its end
    /// ([`Counts::end_return`]).
    pub(crate) fn postpone(self) -> Adjustment {
        let adjustment = self.adjustment;
        std::mem::forget(self);
        adjustment
    }
}

impl Counts {
    /// Records the end of a return: the store has the units, or they end with their lease.
    pub(crate) fn end_return(&self, units: u64, is_returned: bool) {
        let count = if is_returned { &self.returned } else { &self.expired };
        count.add(units);
        self.returning.subtract(units);
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.counts.end_return(self.units, self.is_returned);
    }
}

/// The counts of leases and units since the store was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounters {
    /// The units that were leased, including those that were borrowed from other regions.
    pub leased: u64,
    /// The leased units that requests have spent, and those of requests that are being decided.
    pub spent: u64,
    /// The units that were returned to the store that they are from.
    pub returned: u64,
    /// The units that were not spent before the end of their lease.
    pub expired: u64,
    /// The leases and returns that the inner store was asked for.
    pub calls: u64,
    /// The number of keys of which units are held.
    pub keys: u64,
    /// The units that are held.
    pub held: u64,
}

impl<S: Store> Leased<S> {
    /// Creates a store around `inner`, on the system clock.
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, SystemClock::new(), RandomState::new().hash_one(0_u8))
    }
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Creates a store around `inner`. `clock` is the monotonic clock of this node, which need not
    /// show the time of the inner store; `seed` determines the places of keys in the table.
    pub fn with_clock(inner: S, clock: C, seed: u64) -> Self {
        Self {
            inner,
            started_at: clock.now(),
            clock,
            table: Table::new(seed),
            counts: Counts::default(),
            ahead: AtomicI64::new(0),
            is_draining: AtomicBool::new(false),
            due: Due::default(),
            far: FarStores::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> LeaseCounters {
        let (_, tick) = self.now();
        let Counts { leased, returned, expired, calls, returning, spent } = &self.counts;
        // First: changes in the meantime make the number of spent units smaller, not larger.
        let leased = leased.get();
        let loaded: u64 = self.listed_places().map(Place::loaded).sum();
        let (returning, returned, expired) = (returning.get(), returned.get(), expired.get());
        let held: Vec<u64> =
            self.listed_places().map(|place| place.held(tick)).filter(|&it| it > 0).collect();
        LeaseCounters {
            leased,
            spent: spent.raise(leased.saturating_sub(loaded + returning + returned + expired)),
            returned,
            expired,
            calls: calls.get(),
            keys: held.len() as u64,
            held: held.iter().sum(),
        }
    }

    /// Returns the units that this node holds in a place; `None` if there are no units.
    fn held_in(place: &Place, tick: Tick) -> Option<Holding> {
        let ends = place.lots.iter().map(crate::lot::Lot::content).filter(|it| it.is_live(tick));
        let last = ends.map(|it| it.end.as_micros()).max()?;
        let state = place.state();
        let state = state.as_ref()?;
        Some(Holding {
            rule: state.rule.name.clone(),
            key: state.key[..].into(),
            units: place.held(tick),
            expires_in: Span::from_micros(last.saturating_sub(tick.as_micros())),
        })
    }

    fn listed_places(&self) -> impl Iterator<Item = &Place> {
        let listed = self.table.listed().clone();
        listed.into_iter().map(|at| self.table.at(at))
    }
}

impl<S, C> Leased<S, C> {
    /// Returns the inner store.
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, C: Clock> Leased<S, C> {
    /// Reads the local clock.
    #[inline]
    pub(crate) fn now(&self) -> (Timestamp, Tick) {
        let now = self.clock.now();
        (now, self.tick(now))
    }

    #[inline]
    pub(crate) fn tick(&self, at: Timestamp) -> Tick {
        Tick::from_micros(at.since(self.started_at).as_micros())
    }

    /// Returns the place of the key of a check, if it has one.
    #[inline]
    pub(crate) fn find(&self, check: &Check<'_>) -> Option<&Place> {
        self.table.find(self.table.tag(check.rule.id, check.key))
    }

    /// Returns the time of the inner store, as far as it is known.
    #[inline]
    pub(crate) fn store_time(&self, now: Timestamp) -> Timestamp {
        now.shifted(self.ahead.load(std::sync::atomic::Ordering::Relaxed))
    }

    pub(crate) fn note_store_time(&self, at: Timestamp, answered: Timestamp) {
        self.ahead.store(at.ahead_of(answered), std::sync::atomic::Ordering::Relaxed);
    }

    /// Reports that a key has few units left.
    #[inline]
    pub(crate) fn report_low(&self, place: &Place, rule: &Rule, held: u64) {
        if held < place.low.load(Ordering::Relaxed) {
            self.wake_tend(place, rule);
        }
    }

    #[cold]
    fn wake_tend(&self, place: &Place, rule: &Rule) {
        // Once: `tend` sets it again.
        if place.low.swap(0, Ordering::AcqRel) > 0 {
            // Leases are renewed under the rule in force, which may have changed since the last one.
            if let Some(state) = &mut *place.state() {
                state.update_rule(rule);
            }
            self.set_due();
        }
    }

    pub(crate) fn set_due(&self) {
        self.due.is_due.store(true, std::sync::atomic::Ordering::Release);
        if let Some(waker) = self.due.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    pub(crate) const fn due_state(&self) -> &Due {
        &self.due
    }
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Decides a single check from the lots of its key.
    #[inline]
    fn try_spend(&self, check: &Check<'_>, outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let units = leasable_units(check)?;
        let cost = u32::try_from(units).ok()?;
        let place = self.find(check)?;
        let (now, tick) = self.now();
        let held = place.spend(cost, tick)?;
        self.report_low(place, check.rule, held);
        outcomes.push(place.describe(&check.rule.quota, Verdict::admitted_from_lease(units), now, held));
        Some((true, self.store_time(now)))
    }

    fn try_decide_several(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        let (now, tick) = self.now();
        let plan = Plan::of(self, checks, (now, tick));
        if plan.is_covered() {
            for (check, part) in checks.iter().zip(&plan.parts) {
                if let Some(place) = part.place {
                    self.report_low(place, check.rule, place.held(tick));
                }
            }
            plan.admit(checks, std::iter::empty(), tick, outcomes);
            return Some((true, self.store_time(now)));
        }
        if let Some(refused) = self.dry_outcomes(checks, &plan, now) {
            plan.refuse(checks, refused.into_iter(), (now, tick), outcomes);
            return Some((false, self.store_time(now)));
        }
        let rest = plan.rest(checks);
        let mut answered = Outcomes::new();
        let (admitted, at) = self.inner.try_decide(&rest, &mut answered)?;
        if admitted {
            plan.admit(checks, answered.into_iter(), tick, outcomes);
        } else {
            for (check, outcome) in rest.iter().zip(&answered) {
                if let Some(place) = check.rule.far.as_ref().and_then(|_| self.find(check)) {
                    place.count_refused(leasable_units(check).unwrap_or(0));
                    self.note_need(check, place, outcome, now);
                }
            }
            plan.refuse(checks, answered.into_iter(), (now, tick), outcomes);
        }
        Some((admitted, at))
    }

    /// Returns the outcomes of the checks that the lots do not cover, if the store refused each of them
    /// a moment ago, and one of them refuses the batch.
    pub(crate) fn dry_outcomes(
        &self,
        checks: &[Check<'_>],
        plan: &Plan<'_>,
        now: Timestamp,
    ) -> Option<Outcomes> {
        let mut outcomes = Outcomes::new();
        let mut refuses = false;
        let uncovered = || checks.iter().zip(&plan.parts).filter(|(_, part)| part.amount.is_some());
        for (check, part) in uncovered() {
            let (place, Some(Amount::Exactly(units))) = (part.place?, part.amount) else { return None };
            let retry_after = place.dry_for(units, now)?;
            refuses |= check.binding;
            let verdict = Verdict::Refused { retry_after };
            outcomes.push(place.describe(&check.rule.quota, verdict, now, 0));
        }
        if !refuses {
            return None;
        }
        for (check, part) in uncovered() {
            if let Some(place) = part.place {
                place.count_refused(leasable_units(check).unwrap_or(0));
                self.note_refused_need(check, place, now);
            }
        }
        Some(outcomes)
    }

    /// Prepares an adjustment of the inner store: own lots that it would count twice are given up.
    async fn before_adjustment(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Adjustment {
        let Some(ttl) = ttl(rule) else { return adjustment };
        match adjustment {
            // The units may have been charged up to one `ttl` before they were spent.
            Adjustment::Refund { units, charge } => {
                Adjustment::Refund { units, charge: ChargeTimes { at: charge.at.before(ttl), ..charge } }
            }
            Adjustment::Grant { .. } => {
                for back in self.take_back_key(rule, key) {
                    self.return_units(rule, key, back).await;
                }
                adjustment
            }
            Adjustment::Reset => {
                drop(self.take_back_key(rule, key));
                adjustment
            }
            other => other,
        }
    }

    fn after_adjustment(&self, rule: &Rule, key: &[u8], outcome: Outcome) -> Outcome {
        let place = ttl(rule).and_then(|_| self.table.find(self.table.tag(rule.id, key)));
        if let Some(place) = place {
            place.note(&outcome, self.now().0);
            place.forget_refusal();
        }
        with_held(outcome, place, self.now().1)
    }
}

impl<S: Store, C: Clock> Store for Leased<S, C> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        if checks.iter().all(|check| is_exact(check.rule)) {
            return self.inner.decide(checks).await;
        }
        let mut outcomes = Outcomes::new();
        if let Some((admitted, at)) = self.try_decide(checks, &mut outcomes) {
            return Ok(Answer { admitted, at, outcomes });
        }
        self.decide_leased(checks).await
    }

    #[inline]
    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        if checks.iter().all(|check| is_exact(check.rule)) {
            return self.inner.try_decide(checks, outcomes);
        }
        outcomes.clear();
        if let [check] = checks
            && let Some(answer) = self.try_spend(check, outcomes)
        {
            return Some(answer);
        }
        self.try_decide_several(checks, outcomes)
    }

    async fn decide_uncached(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        if checks.iter().all(|check| is_exact(check.rule)) {
            return self.inner.decide_uncached(checks).await;
        }
        self.decide_leased(checks).await
    }

    async fn decide_all(&self, batches: &[&[Check<'_>]]) -> Vec<Result<Answer, StoreError>> {
        if batches.iter().all(|checks| checks.iter().all(|check| is_exact(check.rule))) {
            return self.inner.decide_all(batches).await;
        }
        join_all(batches.iter().map(|checks| self.decide_uncached(checks))).await
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        let adjustment = self.before_adjustment(rule, key, adjustment).await;
        let outcome = self.inner.adjust(rule, key, adjustment).await?;
        Ok(self.after_adjustment(rule, key, outcome))
    }

    async fn adjust_once(&self, rule: &Rule, key: &[u8], once: Repeatable) -> Result<Outcome, StoreError> {
        let adjustment = self.before_adjustment(rule, key, once.adjustment).await;
        let outcome = self.inner.adjust_once(rule, key, Repeatable { adjustment, ..once }).await?;
        Ok(self.after_adjustment(rule, key, outcome))
    }

    fn recognizes_adjustments(&self) -> bool {
        self.inner.recognizes_adjustments()
    }

    /// A store that adjusts without waiting also answers without waiting, so nothing is leased from
    /// it.
    fn try_adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Option<Outcome> {
        self.inner.try_adjust(rule, key, adjustment)
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.inner.probe().await
    }

    #[inline]
    fn wall_ahead(&self, at: Timestamp) -> i64 {
        self.inner.wall_ahead(at)
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn nodes(&self) -> usize {
        self.inner.nodes()
    }

    fn holding(&self, rule: &Rule, key: &[u8]) -> Option<Holding> {
        rule.lease?;
        let place = self.table.find(self.table.tag(rule.id, key));
        place.and_then(|place| Self::held_in(place, self.now().1)).or_else(|| {
            Some(Holding { rule: rule.name.clone(), key: key.into(), units: 0, expires_in: Span::ZERO })
        })
    }

    fn holdings(&self, max_keys: usize) -> Vec<Holding> {
        let (_, tick) = self.now();
        let mut all: Vec<_> = self.listed_places().filter_map(|place| Self::held_in(place, tick)).collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.units));
        all.truncate(max_keys);
        all
    }
}

impl<S, C> fmt::Debug for Leased<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased").field("counts", &self.counts).finish_non_exhaustive()
    }
}
