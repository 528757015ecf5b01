//! The observer that passes each decision to the counters and stores of this crate.
//!
//! ```text
//! decision ─► counts ─► per limit: exhausted? spender ─► refused: top keys, record
//!                                                     └ admitted: sampled record and route
//! ```
//!
//! The work on the path of a request is in `policy_watch`.

use std::hash::RandomState;
use std::sync::{Arc, Mutex};

use tollgate::policy::{Key, KeyDisplay};
use tollgate::{
    Decision, DecisionId, Limit, LimitOutcome, Observer, Policy, Span, Subject, Timestamp, Watch,
};

use crate::address::show_address;
use crate::class_counter::ClassCounts;
use crate::counts::{Counters, Counts};
use crate::describe::Describer;
use crate::exhausted::{ExhaustedKey, ExhaustedKeys};
use crate::history::{LimitSeries, LimitWindow};
use crate::key_hash::HashKey;
use crate::limit_counter::LimitCounts;
use crate::metrics;
use crate::policy_watch::PolicyWatch;
use crate::queue_counter::QueueView;
use crate::record::{LimitRecord, Record, RecordHead};
use crate::record_store::{RecordPage, RecordStore};
use crate::redact::PathRedactor;
use crate::reservations::Reservations;
use crate::ring::RetentionCounts;
use crate::samples::Samples;
use crate::series::{History, Series};
use crate::settings::WatchSettings;
use crate::shed_alerts::ShedAlerts;
use crate::spenders::{Spender, Spenders};
use crate::top::{Top, TopList};

/// Counts and records the decisions of a limiter. Clones share their state.
#[derive(Clone)]
pub struct Watcher(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) reservations: Reservations,
    pub(crate) records: RecordStore,
    pub(crate) samples: Samples,
    pub(crate) spenders: Spenders,
    pub(crate) top: Top,
    pub(crate) zero: ExhaustedKeys,
    pub(crate) shed_alerts: ShedAlerts,
    /// The display settings by which stored keys were rendered.
    pub(crate) shows: Mutex<Option<(KeyDisplay, Option<PathRedactor>)>>,
    /// The key of the hashes that are shown.
    pub(crate) secret: RandomState,
    /// The key of the hashes that identify allowances within this process.
    pub(crate) hash_key: HashKey,
}

impl Watcher {
    /// Creates a watcher without any counts.
    pub fn new(settings: &WatchSettings) -> Self {
        Self(Arc::new(Inner {
            counters: Counters::new(),
            history: History::new(),
            reservations: Reservations::new(),
            records: RecordStore::new(settings.records),
            samples: Samples::new(settings.trace_one_in),
            spenders: Spenders::new(),
            top: Top::new(),
            zero: ExhaustedKeys::new(settings.at_zero_for),
            shed_alerts: ShedAlerts::default(),
            shows: Mutex::default(),
            secret: RandomState::new(),
            hash_key: HashKey::random(),
        }))
    }

    /// Advances the five-minute windows to `now`. A timer calls this once a second; a reader calls it
    /// before reading to include the current second.
    pub fn tick(&self, now: Timestamp) {
        self.0.history.tick(now, &self.0.counters);
        self.0.top.tick(now);
        self.0.records.retire(&self.0.secret);
    }

    /// Returns the counts of all decisions since the start.
    pub fn totals(&self) -> Counts {
        self.0.counters.total()
    }

    /// Returns the counts of each priority class since the start.
    pub fn classes(&self) -> Vec<ClassCounts> {
        self.0.counters.classes()
    }

    /// Returns the counts of one limit since the start. `None` if the name is unknown, or if it is
    /// counted as `_other` because there are too many names.
    pub fn limit_totals(&self, name: &str) -> Option<LimitCounts> {
        self.0.counters.limit(name).map(|limit| limit.counts())
    }

    /// Returns the counts of one limit in the last five minutes.
    pub fn limit_window(&self, name: &str) -> Option<LimitWindow> {
        self.0.history.limit_window(name, &self.0.counters)
    }

    /// Returns the requests that wait in the queues of one limit. `None` if it has no queue.
    pub fn queue(&self, name: &str, now: Timestamp) -> Option<QueueView> {
        Some(self.0.counters.limit(name)?.queue()?.view(now))
    }

    /// Returns the last five minutes of one limit in 60 steps.
    pub fn limit_series(&self, name: &str) -> Option<LimitSeries> {
        self.0.history.limit_series(name, &self.0.counters)
    }

    /// Returns the counts of all decisions in each of the last 300 seconds.
    pub fn series(&self) -> Series {
        self.0.history.series()
    }

    /// Returns the 50th, 90th and 99th percentile of decision latency in the last minute; `None` if
    /// there were no decisions.
    pub fn latency(&self) -> Option<[Span; 3]> {
        self.0.history.latency(&self.0.counters)
    }

    /// Writes all counters in the Prometheus text format.
    pub fn metrics(&self, now: Timestamp, out: &mut String) {
        let alerts = (&*self.0.zero.alerts(now), &*self.0.shed_alerts.alerts(now));
        metrics::write(&self.0.counters, alerts, now, out);
    }

    /// Returns the record of a decision, while it is stored.
    pub fn record(&self, id: DecisionId) -> Option<Arc<Record>> {
        self.0.records.find(id, &self.0.secret)
    }

    /// Returns the oldest records after `seq`, at most `most`, and the number of records in between
    /// that were evicted. A number that was not assigned yet belongs to another process: all records
    /// are after it.
    pub fn records_after(&self, seq: u64, most: usize) -> (Vec<Arc<Record>>, u64) {
        let page = self.0.records.after(seq, most, &self.0.secret, |_| true);
        (page.records, page.missed)
    }

    /// Reads the oldest records after `seq`, at most `most`, and returns those that `is_wanted` selects by their heads.
    /// The others cost little: they are not built. `is_wanted` is called in the order of the records, while no other
    /// record can be stored, so it must be fast.
    pub fn select_records_after(
        &self,
        seq: u64,
        most: usize,
        is_wanted: impl FnMut(&RecordHead) -> bool,
    ) -> RecordPage {
        self.0.records.after(seq, most, &self.0.secret, is_wanted)
    }

    /// Returns the latest records, at most `most`, the newest last.
    pub fn latest_records(&self, most: usize, refused_only: bool) -> Vec<Arc<Record>> {
        self.0.records.latest(most, refused_only, &self.0.secret)
    }

    /// Returns the number and age of the stored refusals.
    pub fn kept(&self) -> RetentionCounts {
        self.0.records.kept()
    }

    /// Describes a decision that was only considered. The record is not stored, has no id and no
    /// sequence number, and nothing was charged.
    pub fn describe(
        &self,
        policy: &Policy,
        version: u64,
        subject: Option<Subject<'_>>,
        decision: &Decision<'_>,
        at: Timestamp,
    ) -> Record {
        let (secret, redactor) = (&self.0.secret, PathRedactor::of(policy));
        let describer = Describer { policy, version, secret, redactor: redactor.as_ref() };
        let key_hash = |it: &LimitOutcome<'_>| self.0.key_hash(it.policy_rule(), it.key());
        let mut record = describer.describe(subject, decision, at, key_hash);
        for limit in &mut record.limits {
            limit.count_denied = false;
        }
        record
    }

    /// Returns the recent callers of an allowance, the largest spender first, as `privacy` of this
    /// policy shows them. The units are lower bounds, because concurrent updates may be dropped.
    pub fn spenders(&self, policy: &Policy, limit: &LimitRecord) -> Vec<Spender> {
        self.0.spenders.of(limit.key_hash, &|client| show_address(client, policy, &self.0.secret))
    }

    /// Returns the key of the hashes that are shown instead of limit keys. Other components use it to
    /// show the same hashes.
    pub fn secret(&self) -> &RandomState {
        &self.0.secret
    }

    /// Returns the keys refused most and the routes requested most in the last five minutes.
    pub fn top(&self, now: Timestamp, most: usize) -> TopList {
        self.0.top.list(now, most)
    }

    /// Drops the exhausted state of a key that was refunded or reset.
    pub fn forget_key(&self, limit: &Limit, key: &Key) {
        self.0.forget_key(limit, key);
    }

    /// Returns the time since which a candidate is compared with its live limit: the first decision
    /// after either of them changed. `None` if there was no decision.
    pub fn agreement_since(&self, name: &str) -> Option<Timestamp> {
        self.0.counters.limit(name)?.agreement_since()
    }

    /// Returns the time after which an exhausted key becomes an alert.
    pub fn at_zero_for(&self) -> Span {
        self.0.zero.after()
    }

    /// Returns the alerts: the priority classes that are shed although they are not the least important
    /// one, with the class as the key of the shedder, then the keys that have been exhausted for long
    /// enough, the longest first.
    pub fn alerts(&self, now: Timestamp) -> Vec<ExhaustedKey> {
        let mut alerts = self.0.shed_alerts.alerts(now);
        alerts.extend(self.0.zero.alerts(now));
        alerts
    }
}

impl Observer for Watcher {
    fn watch(&self, policy: &Arc<Policy>, version: u64) -> Arc<dyn Watch> {
        let redactor = PathRedactor::of(policy);
        self.0.show_as(policy.key_display(), redactor.as_ref());
        self.0.refuses_by(policy);
        Arc::new(PolicyWatch::new(policy, version, redactor, Arc::clone(&self.0)))
    }
}
