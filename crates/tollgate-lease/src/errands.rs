//! The work behind the requests: renewals and returns.
//!
//! A key that holds less than nine sixteenths of its usage in one `ttl` is renewed, so that a silence of
//! the store of half a `ttl` is bridged. Units that will not be spent before the end of their lease are returned.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Poll;

use smallvec::SmallVec;
use tollgate_core::{Amount, LeaseRequest, Rule, Span, Timestamp};
use tollgate_store::{Check, Clock, Store};

use crate::decide::{Asking, CallTimes};
use crate::far::ttl;
use crate::leased::{Leased, Returning};
use crate::lot::{Lot, Tick};
use crate::place::{LOTS, Place, PlaceState};
use crate::usage::renewal_threshold;

/// The largest number of visits of a key per `ttl`.
pub(crate) const VISITS_PER_TTL: u64 = 8;

/// The shortest time between two visits.
const MIN_VISIT_INTERVAL: Span = Span::from_millis(1);

/// A lease to take or units to return. Run it with [`Leased::run`]; if it is dropped, its units end
/// with their lease.
pub struct Errand<'l> {
    rule: Arc<Rule>,
    key: Arc<[u8]>,
    lease: Option<Asking<'l>>,
    back: SmallVec<[Returning<'l>; LOTS]>,
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Visits the keys that hold leases, and returns the work that is due, with the time until the
    /// next visit. `None`: no visit is needed until [`due`](Self::due) is ready.
    pub fn errands(&self) -> (Vec<Errand<'_>>, Option<Span>) {
        self.due_state().is_due.store(false, Ordering::Release);
        let now = self.now();
        let (mut errands, mut next) = (Vec::new(), None::<Span>);
        // Held throughout: a key that is unlisted here and gets a lease is listed again after that.
        self.table.listed().retain(|&at| {
            let place = self.table.at(at);
            let mut guard = place.state();
            let Some(state) = guard.as_mut() else { return false };
            state.is_listed = self.visit(place, state, now, &mut errands);
            let Some(ttl) = ttl(&state.rule).filter(|_| state.is_listed) else { return false };
            let interval = Span::from_micros(ttl.as_micros() / VISITS_PER_TTL).max(MIN_VISIT_INTERVAL);
            next = Some(next.map_or(interval, |it| it.min(interval)));
            true
        });
        (errands, next)
    }

    /// Visits a key. Returns whether it has to be visited again.
    fn visit<'l>(
        &'l self,
        place: &'l Place,
        state: &mut PlaceState,
        (now, tick): (Timestamp, Tick),
        errands: &mut Vec<Errand<'l>>,
    ) -> bool {
        let Some(ttl) = ttl(&state.rule) else { return false };
        let usage = state.usage(place, ttl, now);
        state.expire(place, tick, &self.counts);
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        let mut back = SmallVec::new();
        for lot in 0..LOTS {
            let surplus = if is_draining { u32::MAX } else { surplus(place, lot, (usage, ttl), tick) };
            if surplus > 0 {
                back.extend(state.take_back(place, lot, surplus, tick, &self.counts));
            }
        }
        let mut lease = None;
        let held = place.held(tick);
        let may_lease = state.rule.lease.is_some() && !is_draining;
        if may_lease && !state.is_asking() && held < renewal_threshold(usage) {
            let rule = Arc::clone(&state.rule);
            let size = state.lease_size(place, &rule, ttl, (now, tick), self.inner.nodes());
            if let Some(units) = size {
                // All lots are in use: the rest of the oldest makes room.
                if let Some(oldest) = place.oldest_of_full(0..LOTS, tick) {
                    back.extend(state.take_back(place, oldest, u32::MAX, tick, &self.counts));
                }
                state.begin_asking(units);
                let tag = place.tag.load(crate::sync::Ordering::Acquire);
                lease = Some(Asking::new(place, tag, LeaseRequest { units, ttl }));
            }
        }
        self.visit_far(place, state, (usage, ttl), (now, tick));
        let is_hot = usage >= crate::MIN_LEASE_UNITS.into();
        let stays = held > 0 || state.is_asking() || state.is_borrowing || (is_hot && !is_draining);
        if lease.is_some() || !back.is_empty() {
            errands.push(Errand { rule: Arc::clone(&state.rule), key: Arc::clone(&state.key), lease, back });
        }
        stays
    }

    /// Runs an errand.
    pub async fn run(&self, errand: Errand<'_>) {
        let Errand { rule, key, lease, back } = errand;
        let mut calls: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
        for back in back {
            calls.push(Box::pin(self.return_units(&rule, &key, back)));
        }
        if let Some(asking) = lease {
            calls.push(Box::pin(self.renew(&rule, &key, asking)));
        }
        // In one turn, so that they share a call: the returned units are available to the lease.
        join_all(calls).await;
    }

    /// Renews leases that are half spent, and returns units that will not be spent. Returns the time
    /// until the next visit; `None`: when [`due`](Self::due) is ready.
    pub async fn tend(&self) -> Option<Span> {
        let (errands, next) = self.errands();
        join_all(errands.into_iter().map(|errand| Box::pin(self.run(errand)) as _).collect()).await;
        next
    }

    /// Waits until [`tend`](Self::tend) has work before its next visit.
    pub async fn due(&self) {
        poll_fn(|context| {
            let due = self.due_state();
            *due.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            if due.is_due.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns all units, and takes no more leases.
    pub async fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.tend().await;
        self.settle_far().await;
        // Leases that were being taken are returned, too. No other one begins: the flag is read under
        // the lock of the place.
        for place in self.table.all() {
            self.lease_taken(place, place.tag.load(crate::sync::Ordering::Acquire)).await;
        }
        self.tend().await;
        self.settle_far().await;
    }

    async fn renew(&self, rule: &Rule, key: &[u8], asking: Asking<'_>) {
        self.counts.calls.add(1);
        let (requested_at, _) = self.now();
        let check = Check { amount: Amount::Lease(asking.request), ..Check::new(rule, key, 0) };
        match self.inner.decide_uncached(&[check]).await {
            Ok(answer) => {
                let (answered, _) = self.now();
                self.note_store_time(answer.at, answered);
                let times = CallTimes { requested_at, answered, at: answer.at };
                if let Some(outcome) = answer.outcomes.first() {
                    self.install(&asking, outcome, times);
                }
            }
            Err(error) => self.put_off(&[(0, asking)], &error),
        }
    }

    /// Takes all units of a key out of its lots, to return them.
    pub(crate) fn take_back_key(&self, rule: &Rule, key: &[u8]) -> SmallVec<[Returning<'_>; LOTS]> {
        let (_, tick) = self.now();
        let Some(place) = self.table.find(self.table.tag(rule.id, key)) else { return SmallVec::new() };
        let mut guard = place.state();
        let Some(state) = guard.as_mut() else { return SmallVec::new() };
        (0..LOTS).filter_map(|lot| state.take_back(place, lot, u32::MAX, tick, &self.counts)).collect()
    }

    /// Returns units to the store. If it gives no answer, they end with their lease.
    pub(crate) async fn return_units(&self, rule: &Rule, key: &[u8], back: Returning<'_>) {
        self.counts.calls.add(1);
        let Ok(outcome) = self.inner.adjust(rule, key, back.adjustment).await else { return };
        back.conclude();
        if let Some(place) = self.table.find(self.table.tag(rule.id, key)) {
            place.note(&outcome, self.now().0);
        }
    }
}

/// Returns the units of a lot that will not be spent before it ends. Units are returned in the last
/// quarter of a lease, when the remaining units are known.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn surplus(place: &Place, lot: usize, (usage, ttl): (u64, Span), now: Tick) -> u32 {
    let content = place.lots[lot].content();
    if !content.is_live(now) {
        return 0;
    }
    let (left, ttl) = (content.end.as_micros() - now.as_micros(), ttl.as_micros().max(1));
    if left > ttl / 4 {
        return 0;
    }
    if usage < crate::MIN_LEASE_UNITS.into() {
        return content.units;
    }
    // The units spent until the end, after the lots that end before, and as much again for a 32nd of the
    // `ttl`.
    let before = place.lots.iter().map(Lot::content).filter(|it| it.is_live(now) && it.end < content.end);
    let before: u128 = before.map(|it| u128::from(it.units)).sum();
    let spent = u128::from(usage) * u128::from(left + ttl / 32) / u128::from(ttl);
    let spent = spent.saturating_sub(before);
    let surplus = u128::from(content.units).saturating_sub(spent) as u32;
    // A few units are not worth a call, unless they are a large part of a small lease.
    let worth_a_call = u64::from(crate::MIN_LEASE_UNITS).min(usage / 16).max(1);
    if u64::from(surplus) >= worth_a_call { surplus } else { 0 }
}

/// Runs futures concurrently.
pub(crate) async fn join_all(mut calls: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
