//! A place of the table: the lots of one key, and the view of this node on the key.
//!
//! Requests read and change only atomics. The lock is for requests that ask the store, and for
//! `tend`.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm as _, BucketState, Outcome, Quota, Rule, Span, Timestamp, Verdict};

use crate::far::FarView;
use crate::leased::{Counts, Returning};
use crate::lot::{Content, Lot, Tick};
use crate::sync::{AtomicU64, Ordering};
use crate::usage::{Situation, UsageRate, lease_size};

/// The number of lots of a key. In steady traffic three are in use: a lease is taken when seven
/// sixteenths of the usage of one `ttl` are missing.
pub(crate) const LOTS: usize = 4;

/// The lots of units that were borrowed from other regions, after those of the near store.
pub(crate) const FAR_LOTS: Range<usize> = LOTS..LOTS + 2;

/// The lots of one key, and the view of this node on the key.
///
/// The words that a decision reads are in one cache line: `tag`, `lots` and `low`.
#[repr(C, align(64))]
pub(crate) struct Place {
    /// The hash of the rule and the key; zero if the place is free.
    pub(crate) tag: AtomicU64,
    pub(crate) lots: [Lot; FAR_LOTS.end],
    /// The number of held units below which a renewal is due. Zero: no request has to report it.
    pub(crate) low: AtomicU64,
    /// The time by the local clock at which the key is fresh again, by the last answer of the store.
    fresh_at: AtomicU64,
    /// The units that the store had left at the last answer, for limits other than buckets.
    remaining: AtomicU64,
    /// Until when the store need not be asked for `dry_cost` units or more, by the local clock.
    dry_until: AtomicU64,
    dry_cost: AtomicU64,
    /// The units that were refused here since the last estimate.
    refused: AtomicU64,
    /// The largest cost that the near store refused since the last visit, for keys that may borrow.
    pub(crate) wanted: AtomicU64,
    /// The time before which requests need not report that the key is short, by the local clock.
    pub(crate) report_after: AtomicU64,
    state: Mutex<Option<Box<PlaceState>>>,
}

/// The part of a place behind its lock.
pub(crate) struct PlaceState {
    pub(crate) rule: Arc<Rule>,
    pub(crate) key: Arc<[u8]>,
    usage: UsageRate,
    /// The lease of each lot.
    leases: [LotLease; FAR_LOTS.end],
    /// The lease that is being taken.
    attempt: Option<Attempt>,
    /// The number of leases that were asked for, including the one that is being taken.
    attempts: u64,
    /// The last attempt that the store did not answer in time, and that time.
    silence: Option<(u64, Duration)>,
    /// The time before which no lease is taken, by the local clock.
    pub(crate) not_before: Timestamp,
    pub(crate) last_used: Timestamp,
    /// Whether the place is in the list of places that `tend` visits.
    pub(crate) is_listed: bool,
    waiters: SmallVec<[Waker; 2]>,
    /// Whether units are being borrowed from another region.
    pub(crate) is_borrowing: bool,
    /// The views on the key in other regions, by the index of their store.
    far: SmallVec<[FarView; 2]>,
}

/// A lease that is being taken.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// The units that requests may still count on.
    unclaimed: u64,
}

/// The lease of a lot.
#[derive(Clone, Copy, Debug)]
struct LotLease {
    /// By the store's clock.
    taken_at: Timestamp,
    ttl: Span,
    /// The units when the lot was last looked at.
    seen: u32,
    /// The store of another region that the units are from, by its index.
    far: Option<u8>,
}

/// A lease that the store has granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) content: Content,
    pub(crate) taken_at: Timestamp,
    pub(crate) ttl: Span,
    /// The store of another region, by its index; `None` for the near store.
    pub(crate) far: Option<u8>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            tag: AtomicU64::new(0),
            lots: std::array::from_fn(|_| Lot::new()),
            low: AtomicU64::new(0),
            fresh_at: AtomicU64::new(0),
            remaining: AtomicU64::new(u64::MAX),
            dry_until: AtomicU64::new(0),
            dry_cost: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            report_after: AtomicU64::new(0),
            state: Mutex::new(None),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Option<Box<PlaceState>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the place that of another key. Its lots are empty or have ended.
    pub(crate) fn assign(&self, tag: u64, (rule, key): (&Rule, &[u8]), now: Timestamp, counts: &Counts) {
        let lease = LotLease { taken_at: Timestamp::EPOCH, ttl: Span::ZERO, seen: 0, far: None };
        let mut state = self.state();
        for lot in &self.lots {
            counts.expired.add(lot.clear().units.into());
        }
        let is_listed = state.as_ref().is_some_and(|it| it.is_listed);
        *state = Some(Box::new(PlaceState {
            rule: Arc::new(rule.clone()),
            key: key.into(),
            usage: UsageRate::new(now),
            leases: [lease; FAR_LOTS.end],
            attempt: None,
            attempts: 0,
            silence: None,
            not_before: now,
            last_used: now,
            is_listed,
            waiters: SmallVec::new(),
            is_borrowing: false,
            far: SmallVec::new(),
        }));
        for (cell, value) in [
            (&self.low, 0),
            (&self.fresh_at, 0),
            (&self.remaining, u64::MAX),
            (&self.dry_until, 0),
            (&self.refused, 0),
            (&self.wanted, 0),
            (&self.report_after, 0),
            (&self.tag, tag),
        ] {
            cell.store(value, Ordering::Release);
        }
    }

    /// Returns whether another key may take the place.
    pub(crate) fn idle_since(&self, now: Tick) -> Option<Timestamp> {
        if self.lots.iter().any(|lot| lot.content().is_live(now)) {
            return None;
        }
        match &*self.state() {
            Some(state) if state.is_asking() || state.is_borrowing => None,
            Some(state) => Some(state.last_used),
            None => Some(Timestamp::EPOCH),
        }
    }

    /// Returns the units that may be spent at `now`.
    #[inline]
    pub(crate) fn held(&self, now: Tick) -> u64 {
        let live = |lot: &Lot| Some(lot.content()).filter(|it| it.is_live(now)).map_or(0, |it| it.units);
        self.lots.iter().map(|lot| u64::from(live(lot))).sum()
    }

    /// Returns the units of all lots, also of those that have ended.
    pub(crate) fn loaded(&self) -> u64 {
        self.lots.iter().map(|lot| u64::from(lot.content().units)).sum()
    }

    /// Spends units of the lot that ends first among those that have enough. Returns the units that are
    /// held after that.
    #[inline]
    pub(crate) fn spend(&self, units: u32, now: Tick) -> Option<u64> {
        loop {
            let (mut first, mut held) = (None::<(&Lot, Content)>, 0);
            for lot in &self.lots {
                let content = lot.content();
                if now < content.end {
                    held += u64::from(content.units);
                    if content.units >= units && first.is_none_or(|(_, it)| content.end < it.end) {
                        first = Some((lot, content));
                    }
                }
            }
            let (lot, content) = first?;
            // Another thread may have changed the lot since: then all are looked at again.
            if lot.spend(content, units) {
                return Some(held - u64::from(units));
            }
        }
    }

    /// Takes up to `most` units, and at least `least`, from the lot that ends first among those that
    /// have `least`. Returns the lot with the taken units and its end.
    #[inline]
    pub(crate) fn take(&self, least: u32, most: u32, now: Tick) -> Option<(&Lot, Content)> {
        loop {
            let mut first = None::<(&Lot, Tick)>;
            for lot in &self.lots {
                let Content { units, end } = lot.content();
                if units >= least && now < end && first.is_none_or(|(_, it)| end < it) {
                    first = Some((lot, end));
                }
            }
            let (lot, _) = first?;
            // Another thread may have taken them since: then the next lot is tried.
            if let Some((taken, _)) = lot.take(least, most, now) {
                return Some((lot, taken));
            }
        }
    }

    /// Returns the index of the live lot that ends first, if all of these lots are live.
    pub(crate) fn oldest_of_full(&self, lots: Range<usize>, now: Tick) -> Option<usize> {
        if !self.lots[lots.clone()].iter().all(|lot| lot.content().is_live(now)) {
            return None;
        }
        lots.min_by_key(|&at| self.lots[at].content().end)
    }

    /// Records the outcome of the store for the key.
    pub(crate) fn note(&self, outcome: &Outcome, answered: Timestamp) {
        // Relaxed, here and below: the numbers inform callers, and decide nothing.
        let fresh_at = answered + outcome.reset_after;
        self.fresh_at.store(fresh_at.as_micros(), Ordering::Relaxed);
        self.remaining.store(outcome.remaining, Ordering::Relaxed);
    }

    /// Records that the store refused this cost.
    pub(crate) fn note_refusal(&self, cost: u64, until: Timestamp) {
        self.dry_cost.store(cost, Ordering::Relaxed);
        self.dry_until.store(until.as_micros(), Ordering::Relaxed);
    }

    /// Forgets a refusal: the key has changed.
    pub(crate) fn forget_refusal(&self) {
        self.dry_until.store(0, Ordering::Relaxed);
    }

    /// Returns for how long the store need not be asked for this cost.
    pub(crate) fn dry_for(&self, cost: u64, now: Timestamp) -> Option<Span> {
        let until = Timestamp::from_micros(self.dry_until.load(Ordering::Relaxed));
        let is_dry = until > now && cost >= self.dry_cost.load(Ordering::Relaxed);
        is_dry.then(|| until.since(now))
    }

    /// Counts units that were refused here.
    pub(crate) fn count_refused(&self, units: u64) {
        self.refused.fetch_add(units, Ordering::Relaxed);
    }

    /// Returns the outcome of a key by the last answer of the store, and the units held here.
    #[inline]
    pub(crate) fn describe(&self, quota: &Quota, verdict: Verdict, now: Timestamp, held: u64) -> Outcome {
        let fresh_at = Timestamp::from_micros(self.fresh_at.load(Ordering::Relaxed));
        let mut outcome = match quota {
            Quota::Bucket(bucket) => {
                match bucket.in_ticks().and_then(|it| it.describe(fresh_at, true, 0, now)) {
                    Some(outcome) => Outcome { verdict, ..outcome },
                    None => bucket.describe(&BucketState { tat: fresh_at, grains: 0 }, verdict, now),
                }
            }
            quota => {
                let limit = quota.capacity();
                let known = self.remaining.load(Ordering::Relaxed).min(limit);
                let remaining = if now < fresh_at { known } else { limit };
                Outcome { verdict, limit, remaining, reset_after: fresh_at.since(now) }
            }
        };
        outcome.remaining = outcome.remaining.saturating_add(held).min(outcome.limit);
        outcome
    }
}

impl PlaceState {
    /// Counts units that a request asks the store for.
    pub(crate) fn ask(&mut self, units: u64, now: Timestamp) {
        self.usage.add(units);
        self.last_used = now;
    }

    /// Replaces the rule if its quota, its lease or its shares have changed: windows keep their id when
    /// their limit changes.
    pub(crate) fn update_rule(&mut self, rule: &Rule) {
        let known = &self.rule;
        let is_same_far = match (&known.far, &rule.far) {
            (Some(known), Some(far)) => Arc::ptr_eq(known, far),
            (known, far) => known.is_none() && far.is_none(),
        };
        let is_same = known.quota == rule.quota && known.lease == rule.lease && is_same_far;
        if known.id == rule.id && !is_same {
            self.rule = Arc::new(rule.clone());
        }
    }

    /// Counts the units spent here since the last call. Returns whether there were any.
    fn observe(&mut self, place: &Place) -> bool {
        let mut spent = 0;
        for (lot, lease) in place.lots.iter().zip(&mut self.leases) {
            let units = lot.content().units;
            spent += u64::from(lease.seen.saturating_sub(units));
            lease.seen = units;
        }
        self.usage.add(spent);
        spent > 0
    }

    /// Returns the expected usage in one `ttl`, after counting the units spent here.
    pub(crate) fn usage(&mut self, place: &Place, ttl: Span, now: Timestamp) -> u64 {
        if self.observe(place) {
            self.last_used = now;
        }
        self.usage.add(place.refused.swap(0, Ordering::Relaxed));
        self.usage.per_ttl(ttl, now)
    }

    /// Returns the units to lease now, if any.
    pub(crate) fn lease_size(
        &mut self,
        place: &Place,
        rule: &Rule,
        ttl: Span,
        (now, tick): (Timestamp, Tick),
        nodes: usize,
    ) -> Option<u32> {
        let usage = self.usage(place, ttl, now);
        if self.is_asking() || now < self.not_before {
            return None;
        }
        let left = place.describe(&rule.quota, Verdict::Never, now, 0).remaining;
        let situation = Situation { usage, held: place.held(tick), left, nodes: nodes as u64 };
        lease_size(&rule.quota, ttl, situation)
    }

    /// Fills a lot of the store that the units are from. Returns false if all of them are in use.
    pub(crate) fn fill(&mut self, place: &Place, granted: Granted, now: Tick, counts: &Counts) -> bool {
        self.observe(place);
        let Granted { content, taken_at, ttl, far } = granted;
        let lots = if far.is_some() { FAR_LOTS } else { 0..LOTS };
        for (lot, lease) in place.lots[lots.clone()].iter().zip(&mut self.leases[lots]) {
            counts.expired.add(lot.clear_ended(now).into());
            if lot.fill(content, now) {
                *lease = LotLease { taken_at, ttl, seen: content.units, far };
                return true;
            }
        }
        false
    }

    /// Returns the index of the store of another region that the units of a lot are from.
    pub(crate) fn far_store(&self, lot: usize) -> Option<usize> {
        self.leases[lot].far.map(usize::from)
    }

    /// Returns the view on the key in another region, by the index of its store.
    pub(crate) fn far_view(&mut self, store: usize) -> &mut FarView {
        if self.far.len() <= store {
            self.far.resize(store + 1, FarView::default());
        }
        &mut self.far[store]
    }

    /// Empties the lots that have ended.
    pub(crate) fn expire(&mut self, place: &Place, now: Tick, counts: &Counts) {
        self.observe(place);
        for (lot, lease) in place.lots.iter().zip(&mut self.leases) {
            let ended = lot.clear_ended(now);
            if ended > 0 {
                counts.expired.add(ended.into());
                lease.seen = 0;
            }
        }
    }

    /// Takes up to `units` units out of a lot, to return them to the store.
    pub(crate) fn take_back<'l>(
        &mut self,
        place: &Place,
        lot: usize,
        units: u32,
        now: Tick,
        counts: &'l Counts,
    ) -> Option<Returning<'l>> {
        self.observe(place);
        let (taken, left) = place.lots[lot].take(1, units, now)?;
        let lease = &mut self.leases[lot];
        lease.seen = left;
        Some(Returning::new(taken.units, (lease.taken_at, lease.ttl), counts))
    }

    pub(crate) const fn is_asking(&self) -> bool {
        self.attempt.is_some()
    }

    /// Begins to take a lease of this size.
    pub(crate) fn begin_asking(&mut self, units: u32) {
        self.attempt = Some(Attempt { unclaimed: units.into() });
        self.attempts += 1;
    }

    /// Returns the number of the attempt that is under way.
    pub(crate) fn attempt(&self) -> Option<u64> {
        self.attempt.map(|_| self.attempts)
    }

    /// Counts on these units of the lease that is being taken. Returns the number of the attempt, if
    /// there is one and other requests do not count on all of its units.
    pub(crate) fn claim(&mut self, units: u64) -> Option<u64> {
        let attempt = self.attempt.as_mut()?;
        attempt.unclaimed = attempt.unclaimed.checked_sub(units)?;
        Some(self.attempts)
    }

    /// Records that the store did not answer the attempt within this time.
    pub(crate) const fn note_silence(&mut self, deadline: Duration) {
        self.silence = Some((self.attempts, deadline));
    }

    /// Returns the time within which the store did not answer this attempt or a later one.
    pub(crate) fn silence_since(&self, attempt: u64) -> Option<Duration> {
        self.silence.filter(|(at, _)| *at >= attempt).map(|(_, deadline)| deadline)
    }

    /// Ends the attempt to take a lease, and wakes the requests that wait for it.
    pub(crate) fn end_asking(&mut self) {
        self.attempt = None;
        self.waiters.drain(..).for_each(Waker::wake);
    }

    /// Wakes a task when the attempt to take a lease has ended.
    pub(crate) fn wake_later(&mut self, waker: &Waker) {
        if !self.waiters.iter().any(|it| it.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
    }
}
