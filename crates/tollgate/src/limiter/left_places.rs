//! Places of queues that callers have left while other requests waited behind them.
//!
//! A queue takes back its last place only, so that requests which wait keep their times. A place in the middle
//! passes unused if the requests behind it stay. If they leave, too, it becomes the last place, and is refunded
//! then. Without that, callers that leave in the order in which they came would block a queue for its whole
//! length, although no request waits in it.
//!
//! A refund that had no effect may be repeated, because it changed nothing. One that had an effect may not: a
//! newcomer may have the same place by then. The store says which it was
//! ([`Quota::keeps_place`](tollgate_core::Quota::keeps_place)). A refund without an answer is not repeated here.
//!
//! On a store that nodes share, the places behind may be those of another node. `reconcile` tries again then.
//!
//! Invariant: at most [`MAX_PLACES`] places are kept. A place without room passes unused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Adjustment, ChargeTimes, Outcome, Quota, Rule, Span, Timestamp};
use tollgate_policy::Key;
use tollgate_store::Store;

use super::Limiter;
use super::settle::nth;
use crate::outage::{Change, Name};

/// The largest number of places that are kept.
const MAX_PLACES: usize = 16 * 1024;

/// The time between two searches for places that have passed, while as many as possible are kept.
const SEARCH_INTERVAL: Span = Span::from_secs(1);

/// The number of keys whose places one call of `reconcile` tries to refund.
const MAX_RETRIED_KEYS: usize = 32;

/// A place that its caller has left.
#[derive(Clone, Copy, Debug)]
struct LeftPlace {
    units: u64,
    charge: ChargeTimes,
    /// The local time after which it has passed.
    passes_at: Timestamp,
}

impl LeftPlace {
    const fn refund(&self) -> Adjustment {
        Adjustment::Refund { units: self.units, charge: self.charge }
    }
}

/// The places of one key, in the order of the queue.
#[derive(Debug)]
struct KeyPlaces {
    rule: Rule,
    places: Vec<LeftPlace>,
}

/// The places that callers have left.
#[derive(Debug, Default)]
pub(super) struct LeftPlaces {
    kept: Mutex<KeptPlaces>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct KeptPlaces {
    keys: HashMap<Name, KeyPlaces>,
    count: usize,
    /// The time of the last search for places that have passed.
    searched_at: Timestamp,
}

impl KeptPlaces {
    /// Drops the places that have passed.
    fn drop_passed(&mut self, now: Timestamp) {
        self.searched_at = now;
        self.keys.retain(|_, key| {
            key.places.retain(|it| it.passes_at > now);
            !key.places.is_empty()
        });
        self.count = self.keys.values().map(|it| it.places.len()).sum();
    }
}

impl LeftPlaces {
    fn lock(&self) -> MutexGuard<'_, KeptPlaces> {
        // A thread that panicked while holding the lock left places that can be refunded.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Keeps a place, unless too many are kept.
    fn push(&self, (rule, key): (&Rule, &Key), place: LeftPlace, now: Timestamp) {
        let mut kept = self.lock();
        if kept.count >= MAX_PLACES && now.since(kept.searched_at) >= SEARCH_INTERVAL {
            kept.drop_passed(now);
        }
        if kept.count < MAX_PLACES {
            let of_key = kept.keys.entry((rule.id, key.clone()));
            let of_key = of_key.or_insert_with(|| KeyPlaces { rule: rule.clone(), places: Vec::new() });
            let at = of_key.places.partition_point(|it| it.charge.until < place.charge.until);
            of_key.places.insert(at, place);
            kept.count += 1;
        }
        self.publish(&kept);
    }

    /// Removes the last place of a key.
    fn pop(&self, name: &Name) -> Option<LeftPlace> {
        let mut kept = self.lock();
        let of_key = kept.keys.get_mut(name)?;
        let place = of_key.places.pop();
        if of_key.places.is_empty() {
            kept.keys.remove(name);
        }
        kept.count -= usize::from(place.is_some());
        self.publish(&kept);
        place
    }

    /// Returns some keys that have places, with their rules. Places that have passed are dropped.
    fn some_keys(&self, now: Timestamp) -> Vec<(Name, Rule)> {
        let mut kept = self.lock();
        kept.drop_passed(now);
        self.publish(&kept);
        let some = kept.keys.iter().take(MAX_RETRIED_KEYS);
        some.map(|(name, key)| (name.clone(), key.rule.clone())).collect()
    }

    /// Publishes the number of places. Called under the lock, so that the last value is the current one.
    fn publish(&self, kept: &KeptPlaces) {
        self.count.store(kept.count, Ordering::Relaxed);
    }
}

impl<S: Store> Limiter<S> {
    /// Keeps the place of a refund that had no effect, or refunds the places before one that had.
    pub(super) async fn refund_left_places(&self, change: &Change<'_>, outcome: &Outcome) {
        if self.keep_place((change.rule, change.key), change.adjustment, outcome) {
            self.refund_last_places(change.rule, change.key).await;
        }
    }

    /// Does the same as [`refund_left_places`](Self::refund_left_places), on a store that answers without waiting.
    pub(super) fn try_refund_left_places(
        &self,
        (rule, key): (&Rule, &Key),
        adjustment: Adjustment,
        outcome: &Outcome,
    ) {
        if !self.keep_place((rule, key), adjustment, outcome) {
            return;
        }
        let name = (rule.id, key.clone());
        while let Some(place) = self.left_places.pop(&name) {
            let outcome = self.store.try_adjust(rule, key.as_bytes(), place.refund());
            if outcome.is_some_and(|it| it.units() > 0) {
                return self.left_places.push((rule, key), place, self.outage.now());
            }
        }
    }

    /// Tries to refund the places that callers have left, of some keys.
    pub(super) async fn retry_left_places(&self) {
        if self.left_places.is_empty() {
            return;
        }
        for ((_, key), rule) in self.left_places.some_keys(self.outage.now()) {
            self.refund_last_places(&rule, &key).await;
        }
    }

    /// Keeps the place of a refund that had no effect. Returns whether places before it may be refunded.
    fn keep_place(&self, (rule, key): (&Rule, &Key), adjustment: Adjustment, outcome: &Outcome) -> bool {
        let Adjustment::Refund { units, charge } = adjustment else { return false };
        let is_queue = matches!(&rule.quota, Quota::Bucket(it) if it.queue().is_some());
        if is_queue && outcome.units() > 0 {
            let now = self.outage.now();
            let place = LeftPlace { units, charge, passes_at: now + outcome.reset_after };
            self.left_places.push((rule, key), place, now);
        }
        is_queue && outcome.units() == 0 && !self.left_places.is_empty()
    }

    /// Refunds the last places of a key, as far as callers have left them.
    async fn refund_last_places(&self, rule: &Rule, key: &Key) {
        let name = (rule.id, key.clone());
        while let Some(place) = self.left_places.pop(&name) {
            let id = nth(self.outage.next_id(), 0);
            match self.adjust_in_time(self.adjust_once(rule, key, place.refund(), id)).await {
                Ok(outcome) if outcome.units() > 0 => {
                    return self.left_places.push((rule, key), place, self.outage.now());
                }
                Ok(_) => {}
                // It may have been refunded, so it is not tried again.
                Err(_) => return,
            }
        }
    }
}
