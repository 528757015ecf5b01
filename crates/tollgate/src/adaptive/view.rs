//! The state of limits with a learned number of slots, for metrics and the dashboard.

use std::time::Duration;

use tollgate_policy::{Key, KeySource, Limit, PriorityClass};

use super::key_limit::KeyLimit;
use crate::limiter::Limiter;

/// The learned number of slots of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdaptiveView<'l> {
    /// The limit.
    pub limit: &'l Limit,
    /// The key; `None` for a limit by `global`, and for the limit that keys share when the table is full.
    pub key: Option<Key>,
    /// The learned number of slots.
    pub slots: u32,
    /// The number of slots in force: fewer than learned while the latency without waiting is measured.
    pub in_force: u32,
    /// The requests in flight.
    pub in_flight: u32,
    /// The mean latency without waiting, once it was measured.
    pub baseline: Option<Duration>,
    /// The mean latency in the last window.
    pub latency: Option<Duration>,
}

/// The state of one limit with a learned number of slots, over all of its keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdaptiveSummary<'l> {
    /// The limit.
    pub limit: &'l Limit,
    /// The number of keys.
    pub keys: usize,
    /// The sum of the learned numbers of slots.
    pub slots: u64,
    /// The sum of the requests in flight.
    pub in_flight: u64,
    /// The latency without waiting of the key with the most requests in flight.
    pub baseline: Option<Duration>,
    /// The latency in the last window of that key.
    pub latency: Option<Duration>,
    /// The requests that exceeded the limit, by priority class.
    pub exceeded: Vec<Exceeded<'l>>,
}

/// The requests of one class that exceeded a limit. They were refused, or only counted in shadow mode.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Exceeded<'l> {
    /// The class; `None` for requests without one.
    pub priority: Option<&'l PriorityClass>,
    /// The number of requests.
    pub requests: u64,
}

impl<S> Limiter<S> {
    /// Returns the learned numbers of slots, for each limit at most `max_keys` keys with the most requests
    /// in flight. For metrics and operators, not for requests.
    pub fn adaptive_views(&self, max_keys: usize) -> Vec<AdaptiveView<'_>> {
        let mut views = Vec::new();
        for (limit, table) in self.adaptive_tables() {
            let mut keys = table.all();
            keys.sort_by_key(|(_, it)| std::cmp::Reverse(it.in_flight()));
            keys.truncate(max_keys);
            views.extend(keys.into_iter().map(|(key, state)| view(limit, key, &state)));
        }
        views
    }

    /// Returns the state of each limit with a learned number of slots, over all of its keys.
    pub fn adaptive_summaries(&self) -> Vec<AdaptiveSummary<'_>> {
        let classes = self.policy().priorities();
        let summary = |(limit, table): (_, &super::KeyTable)| {
            let keys = table.all();
            let busiest = keys.iter().max_by_key(|(_, it)| it.in_flight()).map(|(_, it)| it.learned());
            let exceeded = table.exceeded().enumerate();
            AdaptiveSummary {
                limit,
                keys: keys.len(),
                slots: keys.iter().map(|(_, it)| u64::from(it.learned().slots)).sum(),
                in_flight: keys.iter().map(|(_, it)| u64::from(it.in_flight())).sum(),
                baseline: busiest.and_then(|it| it.baseline),
                latency: busiest.and_then(|it| it.latency),
                exceeded: exceeded
                    .map(|(rank, requests)| Exceeded { priority: classes.get(rank), requests })
                    .collect(),
            }
        };
        self.adaptive_tables().map(summary).collect()
    }

    fn adaptive_tables(&self) -> impl Iterator<Item = (&Limit, &super::KeyTable)> {
        let tables = self.adaptive.iter().flat_map(|it| &it.tables);
        tables.filter_map(|(place, table)| Some((self.policy().limits().get(*place)?, &**table)))
    }
}

fn view<'l>(limit: &'l Limit, key: Option<Key>, state: &KeyLimit) -> AdaptiveView<'l> {
    let learned = state.learned();
    AdaptiveView {
        limit,
        key: key.filter(|_| !matches!(limit.by(), [KeySource::Global])),
        slots: learned.slots,
        in_force: state.in_force(),
        in_flight: state.in_flight(),
        baseline: learned.baseline,
        latency: learned.latency,
    }
}
