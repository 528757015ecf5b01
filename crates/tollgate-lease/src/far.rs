//! Units that a node borrows from the stores of other regions.
//!
//! A limit that regions share is split: each region decides on its own store, by its own share. A key
//! that runs short there borrows: the node leases units of another region's share from that region's
//! store, and spends them here like any other lot. Nothing is ever added to a state of the near store,
//! so the bound of the limit is the sum of the bounds of its shares, whatever the links do.
//!
//! Requests never wait for another region. They report that a key is short, `tend` decides whether to
//! borrow and how much, and [`Leased::tend_far`] makes the calls.
//!
//! - `link`: what is known about the store of another region: its round trip, and failures.

mod link;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use tollgate_core::{Adjustment, Amount, FarRule, LeaseRequest, Outcome, Rule, Span, Timestamp, Verdict};
use tollgate_store::{Check, Clock, Store};

use self::link::Link;
use crate::MIN_LEASE_UNITS;
use crate::decide::{CallTimes, life, quarter};
use crate::errands::{VISITS_PER_TTL, join_all, surplus};
use crate::leased::{Count, Leased};
use crate::lot::{Content, MAX_LOT_UNITS, Tick};
use crate::place::{FAR_LOTS, Granted, Place, PlaceState};
use crate::plan::leasable_units;
use crate::sync::Ordering;
use crate::usage::{refilled, renewal_threshold};

/// The largest number of calls to other regions at a time.
const MAX_CALLS: usize = 256;

/// The largest number of calls that wait for their turn. Units whose return has no place end with their
/// lease.
const MAX_QUEUED: usize = 4_096;

/// The part of what another region has left that one call asks for, over all nodes.
const PART_OF_LEFT: u64 = 4;

/// The store of another region.
pub struct FarStore<S> {
    region: Box<str>,
    store: S,
    link: Mutex<Link>,
    counts: FarCounts,
}

#[derive(Debug, Default)]
struct FarCounts {
    borrowed: Count,
    returned: Count,
    calls: Count,
    failures: Count,
}

/// What a node has borrowed from one region since it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarCounters {
    /// The name of the region.
    pub region: Box<str>,
    /// The units that were borrowed.
    pub borrowed: u64,
    /// The units that were returned.
    pub returned: u64,
    /// The leases and returns that the region was asked for.
    pub calls: u64,
    /// The calls without an answer.
    pub failures: u64,
    /// Whether the last call was answered. True before the first one.
    pub is_reachable: bool,
    /// The duration of the last answered call, if there was one.
    pub round_trip: Option<Span>,
}

impl<S> FarStore<S> {
    /// Creates a source of units: the store of the region that rules name by `region`
    /// ([`FarRule::region`]). The store has its own deadline, and no cache of refusals.
    pub fn new(region: &str, store: S) -> Self {
        Self { region: region.into(), store, link: Mutex::default(), counts: FarCounts::default() }
    }

    /// Returns the name of the region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Returns the store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counters(&self) -> FarCounters {
        let link = self.link();
        FarCounters {
            region: self.region.clone(),
            borrowed: self.counts.borrowed.get(),
            returned: self.counts.returned.get(),
            calls: self.counts.calls.get(),
            failures: self.counts.failures.get(),
            is_reachable: link.is_reachable(),
            round_trip: link.round_trip(),
        }
    }
}

/// The stores of other regions, and the calls to them that are due.
pub(crate) struct FarStores<S> {
    stores: Box<[FarStore<S>]>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    errands: VecDeque<FarErrand>,
    waker: Option<Waker>,
}

impl<S> Default for FarStores<S> {
    fn default() -> Self {
        Self { stores: Box::default(), queue: Mutex::default() }
    }
}

/// A call to the store of another region.
struct FarErrand {
    /// The place of the key in the table.
    at: u32,
    tag: u64,
    key: Arc<[u8]>,
    /// The index of the store.
    store: usize,
    shares: Arc<[FarRule]>,
    /// The index of the share.
    share: usize,
    call: FarCall,
}

enum FarCall {
    Borrow(LeaseRequest),
    Return(Adjustment),
}

/// What a node knows about a key in another region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FarView {
    remaining: u64,
    answered: Timestamp,
    /// The time before which this region is not asked for units of the key.
    not_before: Timestamp,
    asked: Timestamp,
}

/// Returns how long units of a rule may be held: leased ones and borrowed ones. `None`: never.
pub(crate) fn ttl(rule: &Rule) -> Option<Span> {
    rule.lease.or_else(|| rule.far.as_ref()?.iter().find_map(|it| it.rule.lease))
}

/// Returns whether each request of a rule is decided by the store alone.
#[inline]
pub(crate) const fn is_exact(rule: &Rule) -> bool {
    rule.lease.is_none() && rule.far.is_none()
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Returns this store, which also borrows units from the stores of other regions. Run
    /// [`tend_far`](Self::tend_far) beside [`tend`](Self::tend).
    #[must_use]
    pub fn with_far_stores(mut self, stores: Vec<FarStore<S>>) -> Self {
        self.far = FarStores { stores: stores.into(), queue: Mutex::default() };
        self
    }

    /// Returns the stores of other regions.
    pub fn far_stores(&self) -> &[FarStore<S>] {
        &self.far.stores
    }

    /// Returns what was borrowed, by region.
    pub fn far_counters(&self) -> Vec<FarCounters> {
        self.far.stores.iter().map(FarStore::counters).collect()
    }

    /// Records that the near store has few units left for a check, or refused it.
    pub(crate) fn note_need(&self, check: &Check<'_>, place: &Place, outcome: &Outcome, now: Timestamp) {
        if check.rule.far.is_none() {
            return;
        }
        match outcome.verdict {
            Verdict::Refused { .. } => self.note_refused_need(check, place, now),
            _ if outcome.remaining < outcome.limit / 2 => self.report_need(check, place, now),
            _ => {}
        }
    }

    /// Records that the near store refused a check, or gave no answer.
    pub(crate) fn note_refused_need(&self, check: &Check<'_>, place: &Place, now: Timestamp) {
        if let (Some(units), true) = (leasable_units(check), check.rule.far.is_some() && check.binding) {
            place.wanted.fetch_max(units, Ordering::Relaxed);
            self.report_need(check, place, now);
        }
    }

    /// Lets `tend` visit the key, unless it was reported a moment ago.
    fn report_need(&self, check: &Check<'_>, place: &Place, now: Timestamp) {
        let Some(ttl) = ttl(check.rule).filter(|_| !self.far.stores.is_empty()) else { return };
        if now.as_micros() < place.report_after.load(Ordering::Relaxed) {
            return;
        }
        let pause = Span::from_micros(ttl.as_micros() / VISITS_PER_TTL);
        place.report_after.store((now + pause).as_micros(), Ordering::Relaxed);
        let is_new = place.state().as_mut().is_some_and(|it| !std::mem::replace(&mut it.is_listed, true));
        if is_new {
            self.table.list(place);
        }
        self.set_due();
    }

    /// Visits a key that may hold borrowed units: returns those that will not be spent, and borrows more
    /// if the key is short.
    pub(crate) fn visit_far(
        &self,
        place: &Place,
        state: &mut PlaceState,
        (usage, ttl): (u64, Span),
        now: (Timestamp, Tick),
    ) {
        let Some(shares) = state.rule.far.clone() else { return };
        let is_draining = self.is_draining.load(std::sync::atomic::Ordering::Relaxed);
        for lot in FAR_LOTS {
            let surplus = if is_draining { u32::MAX } else { surplus(place, lot, (usage, ttl), now.1) };
            if surplus > 0 {
                self.return_borrowed(place, state, (lot, surplus), &shares, now.1);
            }
        }
        if is_draining || state.is_borrowing || self.far.stores.is_empty() {
            return;
        }
        let Some((store, share, units)) = self.loan(place, state, (usage, &shares), now) else { return };
        // All lots are in use: the rest of the oldest makes room.
        if let Some(oldest) = place.oldest_of_full(FAR_LOTS, now.1) {
            self.return_borrowed(place, state, (oldest, u32::MAX), &shares, now.1);
        }
        state.is_borrowing = true;
        state.far_view(store).asked = now.0;
        let call = FarCall::Borrow(LeaseRequest { units, ttl: shares[share].rule.lease.unwrap_or(ttl) });
        if !self.enqueue(self.errand(place, state, (store, share, shares), call)) {
            state.is_borrowing = false;
        }
    }

    /// Chooses a region, with the indices of its store and its share, and the units to borrow.
    fn loan(
        &self,
        place: &Place,
        state: &mut PlaceState,
        (usage, shares): (u64, &[FarRule]),
        (now, tick): (Timestamp, Tick),
    ) -> Option<(usize, usize, u32)> {
        let near_rule = Arc::clone(&state.rule);
        let quota = &near_rule.quota;
        let (wanted, held) = (place.wanted.swap(0, Ordering::Relaxed), place.held(tick));
        let near = place.describe(quota, Verdict::Never, now, 0).remaining;
        // While all lots are in use, only a refusal borrows more: the estimate follows slowly when a key
        // becomes idle, and units that are not spent are of use in their own region.
        let is_short = usage >= MIN_LEASE_UNITS.into()
            && near < quota.capacity() / 2
            && held < renewal_threshold(usage)
            && place.oldest_of_full(FAR_LOTS, tick).is_none();
        let wanted = wanted.saturating_sub(held);
        let need = if is_short { usage.saturating_sub(held).max(wanted) } else { wanted };
        if need == 0 {
            return None;
        }
        let offers = self.far.stores.iter().enumerate().filter_map(|(store, source)| {
            let share = shares.iter().position(|it| it.region == source.region)?;
            let (rule, view) = (&shares[share].rule, *state.far_view(store));
            let ttl = rule.lease?;
            if now < view.not_before || !source.link().may_call(now, ttl) {
                return None;
            }
            let is_known = view.answered + ttl > now;
            let left = if is_known { view.remaining } else { rule.quota.capacity() };
            Some((left, std::cmp::Reverse(view.asked), store, share))
        });
        let (left, _, store, share) = offers.max()?;
        let (nodes, rule) = (self.inner.nodes().max(1) as u64, &shares[share].rule);
        let refilled = refilled(&rule.quota, rule.lease?) / nodes;
        let part = (left / (PART_OF_LEFT * nodes)).max(refilled).max(MIN_LEASE_UNITS.into()).max(wanted);
        let units = need.min(part).min(MAX_LOT_UNITS.into());
        Some((store, share, u32::try_from(units).ok()?))
    }

    fn return_borrowed(
        &self,
        place: &Place,
        state: &mut PlaceState,
        (lot, units): (usize, u32),
        shares: &Arc<[FarRule]>,
        now: Tick,
    ) {
        let Some(store) = state.far_store(lot) else { return };
        let Some(back) = state.take_back(place, lot, units, now, &self.counts) else { return };
        let region = self.far.stores.get(store).map(|it| &it.region);
        let share = shares.iter().position(|it| Some(&it.region) == region);
        let queued = share.is_some_and(|share| {
            let call = FarCall::Return(back);
            self.enqueue(self.errand(place, state, (store, share, Arc::clone(shares)), call))
        });
        if let (Adjustment::ReturnLease { units, .. }, false) = (back, queued) {
            self.counts.expired.add(units.into());
        }
    }

    fn errand(
        &self,
        place: &Place,
        state: &PlaceState,
        (store, share, shares): (usize, usize, Arc<[FarRule]>),
        call: FarCall,
    ) -> FarErrand {
        let tag = place.tag.load(Ordering::Acquire);
        FarErrand {
            at: self.table.position(place),
            tag,
            key: Arc::clone(&state.key),
            store,
            shares,
            share,
            call,
        }
    }

    /// Queues a call. Returns false if too many wait.
    fn enqueue(&self, errand: FarErrand) -> bool {
        let mut queue = self.far.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.errands.len() >= MAX_QUEUED {
            return false;
        }
        queue.errands.push_back(errand);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn next_errand(&self, waker: Option<&Waker>) -> Option<FarErrand> {
        let mut queue = self.far.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let errand = queue.errands.pop_front();
        if let (None, Some(waker)) = (&errand, waker) {
            queue.waker = Some(waker.clone());
        }
        errand
    }

    /// Makes the calls to other regions that [`tend`](Self::tend) finds due, several at a time, until it
    /// is dropped. A region that does not answer delays no other.
    pub async fn tend_far(&self) {
        let mut calls: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
        poll_fn(|context| {
            loop {
                while calls.len() < MAX_CALLS
                    && let Some(errand) = self.next_errand(Some(context.waker()))
                {
                    calls.push(Box::pin(self.run_far(errand)));
                }
                let under_way = calls.len();
                calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
                // A call that has ended makes room for others.
                if calls.len() == under_way {
                    return Poll::<()>::Pending;
                }
            }
        })
        .await;
    }

    /// Makes the calls to other regions that are due now.
    pub(crate) async fn settle_far(&self) {
        let mut calls: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
        while let Some(errand) = self.next_errand(None) {
            calls.push(Box::pin(self.run_far(errand)));
        }
        join_all(calls).await;
    }

    async fn run_far(&self, errand: FarErrand) {
        let (Some(source), Some(share)) =
            (self.far.stores.get(errand.store), errand.shares.get(errand.share))
        else {
            return;
        };
        source.counts.calls.add(1);
        match errand.call {
            FarCall::Borrow(request) => {
                let _borrowing = Borrowing { place: self.table.at(errand.at), tag: errand.tag };
                self.borrow(source, &share.rule, &errand, request).await;
            }
            FarCall::Return(back) => {
                let returned = source.store.adjust(&share.rule, &errand.key, back).await.is_ok();
                let Adjustment::ReturnLease { units, .. } = back else { return };
                if returned {
                    self.counts.returned.add(units.into());
                    source.counts.returned.add(units.into());
                } else {
                    // It was not said whether it was returned. At worst, the units end with their lease.
                    self.counts.expired.add(units.into());
                    source.counts.failures.add(1);
                }
            }
        }
    }

    async fn borrow(&self, source: &FarStore<S>, rule: &Rule, errand: &FarErrand, request: LeaseRequest) {
        let (asked, _) = self.now();
        source.link().begin(asked);
        let check = Check { amount: Amount::Lease(request), ..Check::new(rule, &errand.key, 0) };
        let answer = source.store.decide_uncached(&[check]).await;
        let (answered, tick) = self.now();
        let place = self.table.at(errand.at);
        let Some((outcome, at)) = answer.ok().and_then(|it| Some((it.outcomes.first().copied()?, it.at)))
        else {
            source.counts.failures.add(1);
            source.link().fail(answered);
            return;
        };
        source.link().succeed(answered.since(asked), answered);
        let units = u32::try_from(outcome.units()).unwrap_or(0);
        source.counts.borrowed.add(units.into());
        self.counts.leased.add(units.into());
        let mut guard = place.state();
        let state = guard.as_mut().filter(|_| place.tag.load(Ordering::Acquire) == errand.tag);
        let Some(state) = state else {
            self.counts.expired.add(units.into());
            return;
        };
        let view = state.far_view(errand.store);
        (view.remaining, view.answered) = (outcome.remaining, answered);
        if units < request.units {
            view.not_before = answered + quarter(request.ttl);
        }
        if units == 0 {
            return;
        }
        let times = CallTimes { asked, answered, at };
        let content =
            Content { units, end: self.tick(times.asked + life(&rule.quota, request.ttl, &outcome, at)) };
        let granted =
            Granted { content, taken_at: times.at, ttl: request.ttl, far: u8::try_from(errand.store).ok() };
        if tick >= content.end || !state.fill(place, granted, tick, &self.counts) {
            self.counts.expired.add(units.into());
            return;
        }
        // The key can be decided here again.
        place.forget_refusal();
        let usage = state.usage(place, request.ttl, times.answered, &self.counts);
        place.low.store(renewal_threshold(usage), Ordering::Release);
        let is_new = !std::mem::replace(&mut state.is_listed, true);
        drop(guard);
        if is_new {
            self.table.list(place);
        }
        self.set_due();
    }
}

/// An attempt to borrow, which ends when it is dropped.
struct Borrowing<'l> {
    place: &'l Place,
    tag: u64,
}

impl Drop for Borrowing<'_> {
    fn drop(&mut self) {
        if let Some(state) = &mut *self.place.state()
            && self.place.tag.load(Ordering::Acquire) == self.tag
        {
            state.is_borrowing = false;
        }
    }
}
