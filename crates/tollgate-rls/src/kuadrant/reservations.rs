//! The reservations of this node: receipts of estimates until they are committed or their time is over.
//!
//! They are in the memory of the node that reserved. A commit that reaches another node, or this one after a
//! restart, finds no reservation and charges the actual amount; the estimate is refunded at its end, or stays
//! charged if its node has died.
//!
//! Invariant: each receipt is taken once, by a commit or at its end.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tollgate::{DecisionId, Limiter, Receipt, Store, Timestamp};
use tollgate_grpc::call::{Code, Refusal};
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

/// The maximum number of reservations.
const MAX_RESERVATIONS: usize = 100_000;
/// The number of reservations that are refunded at a time.
const REFUNDS_AT_A_TIME: usize = 256;
/// The number of refunds of one call.
const MAX_REFUNDS: usize = 4_096;

const RESULTS: [&str; 4] = ["reserved", "committed", "expired", "unknown"];

/// All reservations of a node, and what became of earlier ones.
#[derive(Default)]
pub(crate) struct Reservations {
    held: Mutex<Held>,
    counts: [AtomicU64; RESULTS.len()],
}

#[derive(Default)]
struct Held {
    receipts: HashMap<DecisionId, (Timestamp, Receipt)>,
    ends: BTreeSet<(Timestamp, DecisionId)>,
}

impl Held {
    fn remove(&mut self, id: DecisionId) -> Option<Receipt> {
        let (end, receipt) = self.receipts.remove(&id)?;
        self.ends.remove(&(end, id));
        Some(receipt)
    }
}

/// The answer to a reservation above the bound.
pub(super) fn too_many() -> Refusal {
    let message =
        format!("this node holds {MAX_RESERVATIONS} reservations already; commit them, or shorten `ttl`");
    Refusal { code: Code::ResourceExhausted, message }
}

impl Reservations {
    /// Whether no further reservation is taken.
    pub(super) fn is_full(&self) -> bool {
        self.held.lock().receipts.len() >= MAX_RESERVATIONS
    }

    /// Adds a reservation until it is taken or ends.
    pub(super) fn add(&self, id: DecisionId, receipt: Receipt, end: Timestamp) {
        let mut held = self.held.lock();
        held.receipts.insert(id, (end, receipt));
        held.ends.insert((end, id));
        self.count(0);
    }

    /// Takes the reservation with this id, if it has not been refunded.
    pub(super) fn take(&self, id: &str) -> Option<Receipt> {
        let found = id.parse().ok().and_then(|id| self.held.lock().remove(id));
        if found.is_some() {
            self.count(1);
        } else if !id.is_empty() {
            self.count(3);
        }
        found
    }

    fn take_ended(&self, now: Timestamp) -> Vec<Receipt> {
        let mut held = self.held.lock();
        let ended = held.ends.range(..=(now, DecisionId(u64::MAX)));
        let ended: Vec<_> = ended.take(REFUNDS_AT_A_TIME).map(|(_, id)| *id).collect();
        ended.into_iter().filter_map(|id| held.remove(id)).collect()
    }

    /// Refunds the reservations that have ended.
    pub(crate) async fn refund_ended<S: Store>(&self, limiter: &Limiter<S>, now: Timestamp) {
        for _ in 0..MAX_REFUNDS / REFUNDS_AT_A_TIME {
            let ended = self.take_ended(now);
            if ended.is_empty() {
                return;
            }
            // A refund that the store does not confirm is deferred.
            join_all(ended.iter().map(|receipt| limiter.refund_receipt(receipt))).await;
            for _ in &ended {
                self.count(2);
            }
        }
    }

    fn count(&self, result: usize) {
        self.counts[result].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, out: &mut String) {
        let mut to = Exposition::new(out);
        let held = u64::try_from(self.held.lock().receipts.len()).unwrap_or(u64::MAX);
        to.one("tollgate_rls_reservations", Gauge, "Reservations that are currently held.", held);
        let help =
            "Reservations that were made, committed or refunded at their end, and commits of unknown ones.";
        let mut family = to.family("tollgate_rls_reservations_total", Counter, help);
        for (result, count) in RESULTS.iter().zip(&self.counts) {
            family.value(&[("result", result)], count.load(Ordering::Relaxed));
        }
    }
}
