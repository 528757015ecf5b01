//! What only the process around the API knows, and what is noticed from time to time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Health, Timestamp};

/// How many outages are remembered: the last.
const MAX_OUTAGES: usize = 20;

/// What only the process around the API knows: how full things are.
///
/// ```
/// # use tollgate_server::Gauges;
/// let gauges = Gauges { tarpit_waiting: 3, ..Gauges::default() };
/// assert_eq!(gauges.store, "memory");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// The kind of store: `memory` or `redis`.
    pub store: &'static str,
    /// How many keys it remembers, where that is known.
    pub keys: Option<u64>,
    /// How many keys gave way to others while they still counted, where that is known.
    pub evictions: Option<u64>,
    /// How many requests are held back at the moment.
    pub tarpit_waiting: u64,
    /// How many may be held back at once.
    pub tarpit_most: u64,
    /// How many refusals got no line in the log, since there were too many.
    pub log_suppressed: u64,
}

impl Default for Gauges {
    fn default() -> Self {
        Self {
            store: "memory",
            keys: None,
            evictions: None,
            tarpit_waiting: 0,
            tarpit_most: 0,
            log_suppressed: 0,
        }
    }
}

/// A time in which the store gave no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) from: Timestamp,
    /// `None`: it goes on.
    pub(crate) to: Option<Timestamp>,
}

/// The last outages, as noticed by looking now and then.
#[derive(Default)]
pub(crate) struct Outages(Mutex<VecDeque<Outage>>);

impl Outages {
    /// Looks at how the store is doing now.
    pub(crate) fn notice(&self, health: &Health, now: Timestamp) {
        let mut outages = self.outages();
        let since = if health.is_degraded() { Some(health.since.unwrap_or(now)) } else { None };
        if let Some(last) = outages.back_mut()
            && last.to.is_none()
        {
            if since == Some(last.from) {
                return;
            }
            last.to = Some(since.unwrap_or(now));
        }
        if let Some(from) = since {
            outages.push_back(Outage { from, to: None });
            if outages.len() > MAX_OUTAGES {
                outages.pop_front();
            }
        }
    }

    /// The last outages, the oldest first.
    pub(crate) fn list(&self) -> Vec<Outage> {
        self.outages().iter().copied().collect()
    }

    fn outages(&self) -> MutexGuard<'_, VecDeque<Outage>> {
        // A list that is whole between any two steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
