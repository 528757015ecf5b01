//! Limits that learn their number of slots from latency: `slots: adaptive`.
//!
//! ```text
//! decide ─► enter: in flight < limit of the class? ─┬─ no ──► Fate::Shed, the store is not asked
//!                                                   └─ yes ─► InFlight, held by the decision, the permit
//!                                                             or the response
//! InFlight::start ──► the service works ──► complete: latency ──► AdaptiveLimit::record
//!                                           drop: one request fewer in flight
//! ```
//!
//! Each node counts and learns for itself: the number of requests in flight of another node would be
//! late when it arrives, and a limit of this node depends on its own requests alone. No store call is made.
//!
//! Counting is atomic, and a short lock guards the estimates of a key. A limiter whose policy has
//! no such limit pays one branch for all of this.
//!
//! The arithmetic is in `tollgate_overload`, the release at the end of a response in `tollgate_http`.

mod in_flight;
mod key_limit;
mod key_table;
mod view;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_overload::adaptive::{AdaptiveSettings, Algorithm};
use tollgate_policy::{AdaptiveAlgorithm, AdaptiveSlots, Checks, Limit, OnHangup, Policy, PriorityClass};
use tollgate_store::Clock;

pub use in_flight::{InFlight, RequestOutcome};
use key_table::KeyTable;
pub use view::{AdaptiveSummary, AdaptiveView, Exceeded};

use crate::shed::AdaptiveShed;

/// The number of slots of a key without any measurement.
const INITIAL_SLOTS: u32 = 20;

/// The limits of one policy that learn their number of slots.
pub(crate) struct AdaptiveLimits {
    /// By the place of the limit in the policy, ascending.
    tables: Vec<(usize, Arc<KeyTable>)>,
    clock: Arc<dyn Clock>,
    /// The number of priority classes.
    classes: usize,
}

impl AdaptiveLimits {
    /// Creates the tables of a policy, or `None` if it has no such limit. A limit that keeps its name and
    /// its key keeps its requests in flight and everything it has learned.
    pub(crate) fn of(
        policy: &Policy,
        before: Option<(&Self, &Policy)>,
        clock: &dyn Fn() -> Arc<dyn Clock>,
    ) -> Option<Arc<Self>> {
        let classes = policy.priorities().len();
        let learned = policy.matched_limits().iter().filter_map(|limit| Some((limit, limit.adaptive()?)));
        let tables: Vec<_> = learned
            .map(|(limit, slots)| {
                let known = before.and_then(|(before, policy)| {
                    let old = policy.limit(limit.name()).filter(|old| old.by() == limit.by())?;
                    before.table(old.place())
                });
                let table = KeyTable::new(settings(slots), limit.is_frozen(), classes, known);
                (limit.place(), Arc::new(table))
            })
            .collect();
        if tables.is_empty() {
            return None;
        }
        let clock = before.map_or_else(clock, |(before, _)| Arc::clone(&before.clock));
        Some(Arc::new(Self { tables, clock, classes }))
    }

    /// Returns the same limits on another clock.
    pub(crate) fn on(&self, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { tables: self.tables.clone(), clock, classes: self.classes })
    }

    /// Counts a request in flight for every limit of its checks, or for none if one of them has no room.
    pub(crate) fn enter<'l>(
        &self,
        checks: &Checks<'l>,
        priority: Option<&PriorityClass>,
    ) -> Result<Option<Arc<InFlight>>, AdaptiveShed<'l>> {
        if checks.adaptive().is_empty() {
            return Ok(None);
        }
        let now = self.clock.now();
        // A request without a class is as unimportant as the last one.
        let rank = priority.map_or(u8::MAX, PriorityClass::rank);
        let mut entered = SmallVec::new();
        let mut hold_on_hangup = None;
        for check in checks.adaptive() {
            let Some(table) = self.table(check.limit.place()) else { continue };
            match table.enter(check, (rank, self.classes), now) {
                Ok(entry) => entered.push(entry),
                Err(shed) => {
                    drop(InFlight::new(entered, &self.clock, None));
                    return Err(shed);
                }
            }
            hold_on_hangup = hold_on_hangup.max(time_to_hold(check.limit));
        }
        Ok(Some(Arc::new(InFlight::new(entered, &self.clock, hold_on_hangup))))
    }

    fn table(&self, place: usize) -> Option<&Arc<KeyTable>> {
        let at = self.tables.binary_search_by_key(&place, |it| it.0).ok()?;
        self.tables.get(at).map(|it| &it.1)
    }
}

/// Returns how long a request is awaited whose caller disconnects.
fn time_to_hold(limit: &Limit) -> Option<Duration> {
    limit.adaptive().filter(|_| limit.on_hangup() == OnHangup::Hold).map(|it| it.ttl.into())
}

fn settings(slots: &AdaptiveSlots) -> AdaptiveSettings {
    let AdaptiveSlots { min, max, algorithm, .. } = *slots;
    let algorithm = match algorithm {
        AdaptiveAlgorithm::Aimd => Algorithm::Aimd,
        AdaptiveAlgorithm::Vegas => Algorithm::Vegas,
        _ => Algorithm::Gradient,
    };
    AdaptiveSettings { min, max, initial: INITIAL_SLOTS, algorithm }
}
