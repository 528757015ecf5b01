//! The way of a decision through all that is counted and remembered.
//!
//! ```text
//! decision ─► counts ─► per limit: at zero? who spent? ─► refused: top keys, record
//!                                                       └ admitted: one in a while, record and routes
//! ```
//!
//! Not here: what is done on the way of a request (`policy_watch`).

use std::hash::RandomState;
use std::sync::{Arc, Mutex};

use tollgate::policy::{Key, KeyDisplay};
use tollgate::{
    Decision, DecisionId, Limit, LimitOutcome, Observer, Policy, Request, Span, Timestamp, Watch,
};

use crate::counts::{Counters, Counts};
use crate::describe::{Describer, show_address};
use crate::exhausted::{ExhaustedKey, ExhaustedKeys};
use crate::history::{LimitSeries, LimitWindow};
use crate::limit_counter::LimitCounts;
use crate::metrics;
use crate::policy_watch::PolicyWatch;
use crate::record::{LimitRecord, Record};
use crate::redact::PathRedactor;
use crate::reservations::Reservations;
use crate::ring::{RetentionCounts, Ring};
use crate::samples::Samples;
use crate::series::{History, Series};
use crate::settings::WatchSettings;
use crate::spenders::{Spender, Spenders};
use crate::top::{Top, TopList};

/// Counts and remembers what was decided. Clones are the same.
#[derive(Clone)]
pub struct Watcher(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) counters: Counters,
    pub(crate) history: History,
    pub(crate) reservations: Reservations,
    pub(crate) ring: Ring,
    pub(crate) samples: Samples,
    pub(crate) spenders: Spenders,
    pub(crate) top: Top,
    pub(crate) zero: ExhaustedKeys,
    /// How keys are shown in what is remembered.
    pub(crate) shows: Mutex<Option<(KeyDisplay, Option<PathRedactor>)>>,
    /// Keys the hashes that are shown.
    pub(crate) secret: RandomState,
    /// Keys the hashes that allowances are known by, in here.
    pub(crate) key_hashes: foldhash::quality::RandomState,
}

impl Watcher {
    /// Knows nothing yet.
    pub fn new(settings: &WatchSettings) -> Self {
        Self(Arc::new(Inner {
            counters: Counters::new(),
            history: History::new(),
            reservations: Reservations::new(),
            ring: Ring::new(settings.records),
            samples: Samples::new(settings.trace_one_in),
            spenders: Spenders::new(),
            top: Top::new(),
            zero: ExhaustedKeys::new(settings.at_zero_for),
            shows: Mutex::default(),
            secret: RandomState::new(),
            key_hashes: foldhash::quality::RandomState::default(),
        }))
    }

    /// It is this late: what is told of the last five minutes goes up to here. To be called once
    /// in each second by a timer, and by whoever reads, who then sees the present second too.
    pub fn tick(&self, now: Timestamp) {
        self.0.history.tick(now, &self.0.counters);
        self.0.top.tick(now);
    }

    /// All decisions since the start.
    pub fn totals(&self) -> Counts {
        self.0.counters.total()
    }

    /// One limit since the start. `None` for a name that is not known, or that is one too
    /// many and counted as `_other`.
    pub fn limit_totals(&self, name: &str) -> Option<LimitCounts> {
        self.0.counters.limit(name).map(|limit| limit.counts())
    }

    /// One limit in the last five minutes.
    pub fn limit_window(&self, name: &str) -> Option<LimitWindow> {
        self.0.history.limit_window(name, &self.0.counters)
    }

    /// One limit in the last five minutes, in 60 steps.
    pub fn limit_series(&self, name: &str) -> Option<LimitSeries> {
        self.0.history.limit_series(name, &self.0.counters)
    }

    /// All decisions of the last 300 seconds, one by one.
    pub fn series(&self) -> Series {
        self.0.history.series()
    }

    /// How long deciding took in the last minute: half of all decisions, nine in ten and 99
    /// in a hundred took no longer. `None`: there were none.
    pub fn latency(&self) -> Option<[Span; 3]> {
        self.0.history.latency(&self.0.counters)
    }

    /// Everything counted, in the text format of Prometheus.
    pub fn metrics(&self, now: Timestamp, out: &mut String) {
        metrics::write(&self.0.counters, &self.alerts(now), out);
    }

    /// The record of a decision, while it is remembered.
    pub fn record(&self, id: DecisionId) -> Option<Arc<Record>> {
        self.0.ring.find(id)
    }

    /// The oldest records after `seq`, at most so many, and how many between are gone
    /// already. A number that was not given yet is of another process: all are after it.
    pub fn records_after(&self, seq: u64, most: usize) -> (Vec<Arc<Record>>, u64) {
        self.0.ring.after(seq, most)
    }

    /// The latest records, at most so many, the newest last.
    pub fn latest_records(&self, most: usize, refused_only: bool) -> Vec<Arc<Record>> {
        self.0.ring.latest(most, refused_only)
    }

    /// What is remembered of refusals, and since when.
    pub fn kept(&self) -> RetentionCounts {
        self.0.ring.kept()
    }

    /// A decision as a record that is not kept: for what was only considered. It has no
    /// name and no number, and nothing was charged for it.
    pub fn describe(
        &self,
        policy: &Policy,
        version: u64,
        request: Option<&dyn Request>,
        decision: &Decision<'_>,
        at: Timestamp,
    ) -> Record {
        let (secret, redactor) = (&self.0.secret, PathRedactor::of(policy));
        let describer = Describer { policy, version, secret, redactor: redactor.as_ref(), names: &[] };
        let key_hash = |it: &LimitOutcome<'_>| self.0.key_hash(it.policy_rule(), it.key());
        let mut record = describer.describe(request, decision, at, key_hash);
        for limit in &mut record.limits {
            limit.count_denied = false;
        }
        record
    }

    /// Who spent from an allowance lately, the most first, as `privacy` of this policy
    /// shows them. Counts are "at least": what two threads told at once is told once.
    pub fn spenders(&self, policy: &Policy, limit: &LimitRecord) -> Vec<Spender> {
        self.0.spenders.of(limit.key_hash, &|client| show_address(client, policy, &self.0.secret))
    }

    /// Keys the hashes that are shown instead of keys: who shows keys elsewhere shows the
    /// same hash with it.
    pub fn secret(&self) -> &RandomState {
        &self.0.secret
    }

    /// Who was refused most and what was asked for most in the last minutes.
    pub fn top(&self, now: Timestamp, most: usize) -> TopList {
        self.0.top.list(now, most)
    }

    /// Somebody gave a key something back, or all: what was known of it is not so any more.
    pub fn forget_key(&self, limit: &Limit, key: &Key) {
        self.0.forget_key(limit, key);
    }

    /// Since when a limit is compared with the one that it is tried beside: the first
    /// decision after either of them was last changed. `None`: there was none.
    pub fn agreement_since(&self, name: &str) -> Option<Timestamp> {
        self.0.counters.limit(name)?.agreement_since()
    }

    /// After how long a key that has nothing left is an alert.
    pub fn at_zero_for(&self) -> Span {
        self.0.zero.after()
    }

    /// Keys that have had nothing left for long, the longest first.
    pub fn alerts(&self, now: Timestamp) -> Vec<ExhaustedKey> {
        self.0.zero.alerts(now)
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
