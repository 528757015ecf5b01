//! The calls to the stores of other regions: units that are borrowed and returned.
//!
//! `tend` queues them, and `tend_far` makes them, so that a slow region delays no renewal of a near lease.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use tollgate_core::{Adjustment, Amount, FarRule, LeaseRequest, Rule};
use tollgate_store::{Check, Clock, Store};

use super::FarStore;
use crate::decide::{life, quarter};
use crate::errands::join_all;
use crate::leased::Leased;
use crate::lot::Content;
use crate::place::{Granted, Place};
use crate::sync::Ordering;
use crate::usage::renewal_threshold;

/// The largest number of calls to other regions at a time.
const MAX_CALLS: usize = 256;

/// The largest number of calls that wait for their turn. Units whose return has no place end with their
/// lease.
const MAX_QUEUED: usize = 4_096;

/// The calls that wait for their turn.
#[derive(Default)]
pub(super) struct Queue {
    errands: VecDeque<FarErrand>,
    waker: Option<Waker>,
}

/// A call to the store of another region.
pub(super) struct FarErrand {
    /// The place of the key in the table.
    pub(super) at: u32,
    pub(super) tag: u64,
    pub(super) key: Arc<[u8]>,
    /// The index of the store.
    pub(super) store: usize,
    pub(super) shares: Arc<[FarRule]>,
    /// The index of the share.
    pub(super) share: usize,
    pub(super) call: FarCall,
}

/// A request to the store of another region.
pub(super) enum FarCall {
    /// Units of a key.
    Borrow(LeaseRequest),
    /// To take units back.
    Return(Adjustment),
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// Queues a call. Returns false if too many wait.
    pub(super) fn enqueue(&self, errand: FarErrand) -> bool {
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
    /// is dropped.
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
        match errand.call {
            FarCall::Borrow(request) => {
                let _borrowing = Borrowing { place: self.table.at(errand.at), tag: errand.tag };
                self.borrow(source, &share.rule, &errand, request).await;
            }
            FarCall::Return(back) => {
                source.counts.calls.add(1);
                let returned = source.store.adjust(&share.rule, &errand.key, back).await.is_ok();
                let Adjustment::ReturnLease { units, .. } = back else { return };
                // Without an answer, it is not known. At worst, the units end with their lease.
                self.counts.end_return(units.into(), returned);
                if returned {
                    source.counts.returned.add(units.into());
                } else {
                    source.counts.failures.add(1);
                }
            }
        }
    }

    async fn borrow(&self, source: &FarStore<S>, rule: &Rule, errand: &FarErrand, request: LeaseRequest) {
        let (requested_at, _) = self.now();
        {
            let mut link = source.link();
            // It may have failed since the call was queued.
            if !link.may_call(requested_at, request.ttl) {
                return;
            }
            link.begin(requested_at);
        }
        source.counts.calls.add(1);
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
        source.link().succeed(answered.since(requested_at), answered);
        let units = u32::try_from(outcome.units()).unwrap_or(0);
        source.counts.borrowed.add(units.into());
        let mut guard = place.state();
        let state = guard.as_mut().filter(|_| place.tag.load(Ordering::Acquire) == errand.tag);
        let Some(state) = state else {
            self.lose(units);
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
        let content =
            Content { units, end: self.tick(requested_at + life(&rule.quota, request.ttl, &outcome, at)) };
        let granted =
            Granted { content, taken_at: at, ttl: request.ttl, far: u8::try_from(errand.store).ok() };
        if tick >= content.end || !state.fill(place, granted, tick, &self.counts) {
            self.lose(units);
            return;
        }
        // The key can be decided here again.
        place.forget_refusal();
        let usage = state.usage(place, request.ttl, answered);
        place.low.store(renewal_threshold(usage), Ordering::Release);
        let is_new = !std::mem::replace(&mut state.is_listed, true);
        drop(guard);
        if is_new {
            self.table.list(place);
        }
        // Last, so that no unit counts as spent before it is in a lot that is counted.
        self.counts.leased.add(units.into());
        self.set_due();
    }

    /// Counts borrowed units that cannot be spent.
    fn lose(&self, units: u32) {
        self.counts.expired.add(units.into());
        self.counts.leased.add(units.into());
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
