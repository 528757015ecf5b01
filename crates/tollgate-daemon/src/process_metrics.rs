//! Metrics of the process: version, reloads, the memory store, and dropped log lines and messages.
//!
//! Metrics of decisions are in `tollgate_telemetry`, of Redis in `store`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tollgate::{Clock, SharedLimiter, Span, SystemClock, Timestamp};
use tollgate_http::{Tarpit, WaitingRoom};
use tollgate_records::RecordLog;
use tollgate_server::Gauges;
use tollgate_telemetry::MetricKind::{Counter, Gauge};
use tollgate_telemetry::{Exposition, Watcher};
use tollgate_xds::XdsCounters;

use crate::config_server;
use crate::logging::Log;
use crate::outbound_metrics::{self, OutboundServices};
use crate::overload_metrics::{self, ThrottleSource};
use crate::protocols::Protocols;
use crate::record_consumer::ConsumerCounts;
use crate::record_metrics;
use crate::store::{AnyStore, counters};

/// The interval between two counts of the memory store's keys, which visit the whole store.
const KEY_COUNT_INTERVAL_SECS: u64 = 10;

/// Counters of reloads.
#[derive(Debug)]
pub(crate) struct Reloads {
    failures: AtomicU64,
    last_worked: AtomicBool,
    /// The time of the last successful reload, in microseconds.
    worked_at: AtomicU64,
}

impl Default for Reloads {
    fn default() -> Self {
        Self { failures: AtomicU64::new(0), last_worked: AtomicBool::new(true), worked_at: AtomicU64::new(0) }
    }
}

impl Reloads {
    /// Records a successful reload.
    pub(crate) fn worked(&self, at: Timestamp) {
        self.worked_at.store(at.as_micros(), Ordering::Relaxed);
        self.last_worked.store(true, Ordering::Relaxed);
    }

    /// Returns the number of rejected policies.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Records a rejected policy.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.last_worked.store(false, Ordering::Relaxed);
    }
}

/// Writes the metrics of the process.
pub(crate) struct ProcessMetrics {
    limiter: SharedLimiter<AnyStore>,
    store: Arc<AnyStore>,
    watcher: Option<Watcher>,
    reloads: Arc<Reloads>,
    consumers: ConsumerCounts,
    log: Log,
    tarpit: OnceLock<Tarpit>,
    waiting_room: OnceLock<WaitingRoom>,
    throttle_counts: OnceLock<ThrottleSource>,
    outbound: OnceLock<OutboundServices>,
    protocols: OnceLock<Protocols>,
    config_server: OnceLock<Arc<XdsCounters>>,
    records: OnceLock<RecordLog>,
    clock: SystemClock,
    used: Mutex<StoreUsage>,
}

/// The usage of the memory store at the last count, and when to count again.
#[derive(Default)]
struct StoreUsage {
    keys: usize,
    evictions: u64,
    until: Timestamp,
}

impl ProcessMetrics {
    /// Returns the number of decisions without the store since the start.
    pub(crate) fn degraded(&self) -> u64 {
        self.watcher.as_ref().map_or(0, |watcher| watcher.totals().degraded)
    }

    pub(crate) fn new(
        (limiter, store): (SharedLimiter<AnyStore>, Arc<AnyStore>),
        watcher: Option<Watcher>,
        reloads: Arc<Reloads>,
        consumers: ConsumerCounts,
        log: Log,
    ) -> Self {
        Self {
            limiter,
            store,
            watcher,
            reloads,
            consumers,
            log,
            tarpit: OnceLock::new(),
            waiting_room: OnceLock::new(),
            throttle_counts: OnceLock::new(),
            outbound: OnceLock::new(),
            protocols: OnceLock::new(),
            config_server: OnceLock::new(),
            records: OnceLock::new(),
            clock: SystemClock::new(),
            used: Mutex::default(),
        }
    }

    /// Appends the metrics in the Prometheus text format.
    pub(crate) fn write(&self, out: &mut String) {
        let limiter = self.limiter.load();
        self.write_process(limiter.version(), &mut Exposition::new(out));
        if let Some((keys, evictions)) = self.usage() {
            let mut to = Exposition::new(out);
            let help = "Keys in the memory store, as last counted.";
            to.one("tollgate_store_keys", Gauge, help, keys);
            let help = "Keys that were evicted because the store was full.";
            to.one("tollgate_store_evictions_total", Counter, help, evictions);
        }
        self.write_tarpit(&mut Exposition::new(out));
        self.write_waiting_room(&mut Exposition::new(out));
        overload_metrics::write_adaptive(&limiter.adaptive_summaries(), &mut Exposition::new(out));
        if let Some(counts) = self.throttle_counts.get() {
            overload_metrics::write_throttle(&counts(), &mut Exposition::new(out));
        }
        if let Some(services) = self.outbound.get() {
            outbound_metrics::write(services, &mut Exposition::new(out));
        }
        if let Some(protocols) = self.protocols.get() {
            protocols.metrics(out);
        }
        if let Some(counters) = self.config_server.get() {
            config_server::write_metrics(counters, &mut Exposition::new(out));
        }
        counters(&self.store, out);
        if let Some(watcher) = &self.watcher {
            watcher.metrics(self.clock.now(), out);
            self.write_consumers(&mut Exposition::new(out));
        }
        if let Some(records) = self.records.get() {
            record_metrics::write(&records.status(), &mut Exposition::new(out));
        }
    }

    /// Returns the values that the dashboard shows.
    pub(crate) fn gauges(&self) -> Gauges {
        let used = self.usage();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let tarpit = self.tarpit.get();
        Gauges {
            store: self.store.kind(),
            keys: used.map(|(keys, _)| count(keys)),
            evictions: used.map(|(_, evictions)| evictions),
            tarpit_waiting: tarpit.map_or(0, |it| count(it.waiting())),
            tarpit_most: tarpit.map_or(0, |it| count(it.max_held())),
            log_suppressed: self.consumers.suppressed(),
            throttled_upstreams: self
                .throttle_counts
                .get()
                .map(|counts| counts().into_iter().map(overload_metrics::throttled_upstream).collect())
                .unwrap_or_default(),
        }
    }

    /// Sets the tarpit. Only the first call has an effect.
    pub(crate) fn hold_back_in(&self, tarpit: Tarpit) {
        let _first = self.tarpit.set(tarpit);
    }

    /// Sets the waiting room. Only the first call has an effect.
    pub(crate) fn wait_in(&self, waiting_room: WaitingRoom) {
        let _first = self.waiting_room.set(waiting_room);
    }

    /// Sets the source of the counts of throttled upstreams. Only the first call has an effect.
    pub(crate) fn throttle_by(&self, counts: ThrottleSource) {
        let _first = self.throttle_counts.set(counts);
    }

    /// Sets the services of the outbound gateway. Only the first call has an effect.
    pub(crate) fn forward_to(&self, services: OutboundServices) {
        let _first = self.outbound.set(services);
    }

    /// Sets the protocols that have their own counters. Only the first call has an effect.
    pub(crate) fn speak(&self, protocols: Protocols) {
        let _first = self.protocols.set(protocols);
    }

    /// Sets the counters of the configuration server's client. Only the first call has an effect.
    pub(crate) fn configure_by(&self, counters: Arc<XdsCounters>) {
        let _first = self.config_server.set(counters);
    }

    /// Sets the decision log. Only the first call has an effect.
    pub(crate) fn record_in(&self, records: RecordLog) {
        let _first = self.records.set(records);
    }

    fn write_process(&self, policy: u64, to: &mut Exposition<'_>) {
        let (version, reloads) = (env!("CARGO_PKG_VERSION"), &self.reloads);
        to.family("tollgate_build_info", Gauge, "The version of the server.")
            .value(&[("version", version)], 1);
        let help = "The version of the policy in force, which mode changes increment too.";
        to.one("tollgate_policy_version", Gauge, help, policy);
        let help = "Policies that were rejected at a reload.";
        to.one("tollgate_reload_failures_total", Counter, help, reloads.failures.load(Ordering::Relaxed));
        let help = "Whether the last reload succeeded.";
        let worked = reloads.last_worked.load(Ordering::Relaxed);
        to.one("tollgate_last_reload_successful", Gauge, help, u8::from(worked));
        let help = "The time of the last successful reload.";
        let worked_at = reloads.worked_at.load(Ordering::Relaxed) / 1_000_000;
        to.one("tollgate_last_reload_success_timestamp_seconds", Gauge, help, worked_at);
        let help = "Log lines that were dropped because the log was not read fast enough.";
        to.one("tollgate_log_dropped_total", Counter, help, self.log.dropped());
    }

    fn write_tarpit(&self, to: &mut Exposition<'_>) {
        let Some(tarpit) = self.tarpit.get() else { return };
        to.one("tollgate_tarpit_waiting", Gauge, "Requests that are currently delayed.", tarpit.waiting());
        to.one("tollgate_tarpit_held_total", Counter, "Requests that were delayed.", tarpit.held());
        let help = "Requests that were not delayed because the tarpit was full.";
        to.one("tollgate_tarpit_passed_total", Counter, help, tarpit.passed());
    }

    fn write_waiting_room(&self, to: &mut Exposition<'_>) {
        let Some(room) = self.waiting_room.get() else { return };
        let help = "Requests that currently wait in the queue of a limit or for a slot.";
        to.one("tollgate_waiting_requests", Gauge, help, room.waiting());
        let help = "Requests that waited in the queue of a limit or for a slot.";
        to.one("tollgate_waiting_held_total", Counter, help, room.held());
        let help = "Requests that were refused because the waiting room was full.";
        to.one("tollgate_waiting_refused_total", Counter, help, room.refused());
        let help =
            "Requests that were refused because a more important one took their place in the waiting room.";
        to.one("tollgate_waiting_displaced_total", Counter, help, room.displaced());
    }

    fn write_consumers(&self, to: &mut Exposition<'_>) {
        let help = "Refusals that were not logged.";
        to.one("tollgate_log_suppressed_total", Counter, help, self.consumers.suppressed());
        if let Some((sent, dropped)) = self.consumers.traces.as_ref().map(|it| it.read()) {
            to.one("tollgate_traces_sent_total", Counter, "Spans that the collector accepted.", sent);
            to.one("tollgate_traces_dropped_total", Counter, "Spans that were never sent.", dropped);
        }
        if let Some((sent, dropped)) = self.consumers.webhook.as_ref().map(|it| it.read()) {
            to.one("tollgate_webhook_sent_total", Counter, "Messages that the webhook accepted.", sent);
            to.one(
                "tollgate_webhook_dropped_total",
                Counter,
                "Alerts whose start or end was not sent.",
                dropped,
            );
        }
    }

    /// Returns the number of keys and evictions of the memory store; `None` for Redis.
    pub(crate) fn usage(&self) -> Option<(usize, u64)> {
        let AnyStore::Memory(store) = &*self.store else { return None };
        let now = self.clock.now();
        let mut known = self.used.lock();
        if now >= known.until {
            let usage = store.usage();
            let (keys, evictions) = (usage.keys, usage.evictions);
            *known = StoreUsage { keys, evictions, until: now + Span::from_secs(KEY_COUNT_INTERVAL_SECS) };
        }
        Some((known.keys, known.evictions))
    }
}
