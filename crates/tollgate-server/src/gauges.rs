//! Values that only the surrounding process knows, and the history of outages.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tollgate::{Health, Timestamp};
use tollgate_api::{MAX_OUTAGES, ThrottledUpstream};

/// Values that only the surrounding process knows, such as fill levels.
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
    /// The number of keys in the store, if known.
    pub keys: Option<u64>,
    /// The number of keys that were evicted while they still counted, if known.
    pub evictions: Option<u64>,
    /// The number of requests in the tarpit.
    pub tarpit_waiting: u64,
    /// The capacity of the tarpit.
    pub tarpit_most: u64,
    /// The number of refusals that were not logged because of the log's rate limit.
    pub log_suppressed: u64,
    /// The throttled upstreams.
    pub throttled_upstreams: Vec<ThrottledUpstream>,
}

impl Default for Gauges {
    fn default() -> Self {
        Self {
            store: "memory",
            keys: None,
            evictions: None,
            tarpit_waiting: 0,
            tarpit_most: 0,
            throttled_upstreams: Vec::new(),
            log_suppressed: 0,
        }
    }
}

/// A period in which the store did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) from: Timestamp,
    /// `None` while the outage lasts.
    pub(crate) to: Option<Timestamp>,
}

/// The last outages, as seen by periodic samples of the store's health.
#[derive(Default)]
pub(crate) struct Outages(Mutex<VecDeque<Outage>>);

impl Outages {
    /// Updates the outages from the current health of the store.
    pub(crate) fn notice(&self, health: &Health, now: Timestamp) {
        let mut outages = self.0.lock();
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

    /// Returns the last outages, the oldest first.
    pub(crate) fn list(&self) -> Vec<Outage> {
        self.0.lock().iter().copied().collect()
    }
}
