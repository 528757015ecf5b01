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
//! - `calls`: the calls to other regions.
//! - `link`: the round trip and the failures of the store of another region.

mod calls;
mod link;

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::{Adjustment, FarRule, LeaseRequest, Outcome, Rule, Span, Timestamp, Verdict};
use tollgate_store::{Check, Clock, Store};

use self::calls::{FarCall, FarErrand, Queue};
use self::link::Link;
use crate::MIN_LEASE_UNITS;
use crate::errands::{VISITS_PER_TTL, surplus};
use crate::leased::{Count, Leased};
use crate::lot::{MAX_LOT_UNITS, Tick};
use crate::place::{FAR_LOTS, Place, PlaceState};
use crate::plan::leasable_units;
use crate::sync::Ordering;
use crate::usage::{refilled, renewal_threshold};

/// The part of the remaining units of another region that one call requests, over all nodes.
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

/// The units that a node has borrowed from one region since it was created.
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

impl<S> Default for FarStores<S> {
    fn default() -> Self {
        Self { stores: Box::default(), queue: Mutex::default() }
    }
}

/// The view of a node on a key in another region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FarView {
    remaining: u64,
    answered: Timestamp,
    /// The time before which this region is not asked for units of the key.
    not_before: Timestamp,
    requested_at: Timestamp,
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

    /// Returns the borrowed units, by region.
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
        state.far_view(store).requested_at = now.0;
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
            Some((left, std::cmp::Reverse(view.requested_at), store, share))
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
        let back = back.postpone();
        let region = self.far.stores.get(store).map(|it| &it.region);
        let share = shares.iter().position(|it| Some(&it.region) == region);
        let queued = share.is_some_and(|share| {
            let call = FarCall::Return(back);
            self.enqueue(self.errand(place, state, (store, share, Arc::clone(shares)), call))
        });
        if let (Adjustment::ReturnLease { units, .. }, false) = (back, queued) {
            self.counts.end_return(units.into(), false);
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
}
