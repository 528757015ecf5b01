//! Reads the records of the watcher on the main thread, and passes them to the log, traces and the
//! webhook.
//!
//! ```text
//! watcher ── ten times a second, records ──► refusal log, traces, decision log on disk
//!         └─ once a second, tick; alerts ──► webhook; counts ──► decision log
//! ```
//!
//! Requests are served on other threads, which never write a log or wait for a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tollgate::{Clock, SystemClock, Timestamp};
use tollgate_records::{MinuteCounts, RecordWriter};
use tollgate_telemetry::{Counts, Watcher};

use crate::addresses::machine_name;
use crate::configuration::{ObserveSettings, Settings};
use crate::failure::Failure;
use crate::refusal_log::RefusalLog;
use crate::traces::{TraceCounts, Traces};
use crate::webhook::{Webhook, WebhookCounts};

/// The interval between two reads of new records.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of records in one read, and of reads in one poll.
const MAX_RECORDS_PER_READ: usize = 1024;
const MAX_READS_PER_POLL: usize = 64;

/// The counters of the receivers, for metrics.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerCounts {
    /// Refusals that were not logged, for any reason.
    suppressed: Arc<AtomicU64>,
    /// Spans, if they are sent.
    pub(crate) traces: Option<Arc<TraceCounts>>,
    /// Alerts, if they are sent.
    pub(crate) webhook: Option<Arc<WebhookCounts>>,
}

impl ConsumerCounts {
    /// Creates the counters of the configured receivers.
    pub(crate) fn new(observing: &ObserveSettings) -> Self {
        let (traces, webhook) = (&observing.traces, &observing.webhook);
        Self {
            suppressed: Arc::default(),
            traces: traces.as_ref().map(|_| Arc::default()),
            webhook: webhook.as_ref().map(|_| Arc::default()),
        }
    }

    /// Returns the number of refusals that were not logged.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }
}

/// The running task.
pub(crate) struct RecordConsumer {
    stop: oneshot::Sender<()>,
    working: JoinHandle<()>,
}

impl RecordConsumer {
    /// Starts the task; needs a runtime. `each_second` is called every second, also without
    /// observation.
    pub(crate) fn start(
        watcher: Option<Watcher>,
        settings: &Settings,
        counts: &ConsumerCounts,
        records: Option<RecordWriter>,
        each_second: impl Fn(Timestamp) + Send + 'static,
    ) -> Result<Self, Failure> {
        let (observing, node) = (&settings.observing, machine_name());
        let tail = match watcher {
            None => None,
            Some(watcher) => Some(RecordTail {
                watcher,
                clock: SystemClock::new(),
                seen: 0,
                has_missed: false,
                logged: Vec::new(),
                traced: Vec::new(),
                suppressed: Arc::clone(&counts.suppressed),
                records,
                counted: Counts::default(),
                log: RefusalLog::new(observing.refusals, settings.format, Arc::clone(&counts.suppressed)),
                traces: match (&observing.traces, &counts.traces) {
                    (Some(traces), Some(counts)) => Some(Traces::start(traces, &node, Arc::clone(counts))?),
                    _ => None,
                },
                webhook: match (&observing.webhook, &counts.webhook) {
                    (Some(webhook), Some(counts)) => {
                        Some(Webhook::start(webhook, &node, Arc::clone(counts))?)
                    }
                    _ => None,
                },
            }),
        };
        let (stop, stopped) = oneshot::channel();
        Ok(Self { stop, working: tokio::spawn(work(tail, each_second, stopped)) })
    }

    /// Passes on the remaining records, within a short time.
    pub(crate) async fn end(self) {
        let Self { stop, working } = self;
        drop(stop);
        // An error means that the task panicked or has ended; both need no action.
        let _ended = working.await;
    }
}

struct RecordTail {
    watcher: Watcher,
    clock: SystemClock,
    /// The sequence number of the last record that was read.
    seen: u64,
    /// Whether records were evicted before they were read.
    has_missed: bool,
    /// The sequence numbers of the records in one read that are logged, and of those that become spans.
    logged: Vec<u64>,
    traced: Vec<u64>,
    suppressed: Arc<AtomicU64>,
    log: Option<RefusalLog>,
    /// The decision log on disk.
    records: Option<RecordWriter>,
    /// The counts that the decision log has.
    counted: Counts,
    traces: Option<Traces>,
    webhook: Option<Webhook>,
}

async fn work(
    mut tail: Option<RecordTail>,
    each_second: impl Fn(Timestamp) + Send,
    mut stopped: oneshot::Receiver<()>,
) {
    let (mut looks, mut seconds) = (every(POLL_INTERVAL), every(Duration::from_secs(1)));
    let (clock, takes_decisions) =
        (SystemClock::new(), tail.as_ref().is_some_and(RecordTail::takes_decisions));
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            _ = looks.tick(), if takes_decisions => tail.iter_mut().for_each(RecordTail::look),
            _ = seconds.tick() => {
                let now = clock.now();
                each_second(now);
                if let Some(tail) = &mut tail {
                    tail.second(now);
                }
            }
        }
    }
    if let Some(tail) = tail {
        tail.end().await;
    }
}

impl RecordTail {
    /// Whether any receiver needs single decisions.
    const fn takes_decisions(&self) -> bool {
        self.log.is_some() || self.traces.is_some() || self.records.is_some()
    }

    /// Passes on the remaining records.
    async fn end(mut self) {
        self.look();
        self.count(self.clock.now());
        if let Some(mut log) = self.log {
            log.end();
        }
        if let Some(records) = self.records {
            // Waits for the disk, which must not keep spans and alerts waiting longer than necessary.
            let _written = tokio::task::spawn_blocking(move || drop(records)).await;
        }
        let traces = async {
            if let Some(traces) = self.traces {
                traces.end().await;
            }
        };
        let webhook = async {
            if let Some(webhook) = self.webhook {
                webhook.end().await;
            }
        };
        tokio::join!(traces, webhook);
    }

    /// Runs once a second.
    fn second(&mut self, now: Timestamp) {
        self.watcher.tick(now);
        self.count(now);
        if self.log.is_none() {
            // Nothing is logged, so every refusal counts as suppressed.
            self.suppressed.store(self.refused(), Ordering::Relaxed);
        }
        if let Some(webhook) = &self.webhook {
            webhook.see(&self.watcher.alerts(now), now);
        }
    }

    /// Passes the counts since the last call to the decision log.
    fn count(&mut self, now: Timestamp) {
        let Some(records) = &self.records else { return };
        let (now_counted, before) = (self.watcher.totals(), self.counted);
        self.counted = now_counted;
        let since = |of: fn(&Counts) -> u64| of(&now_counted).saturating_sub(of(&before));
        let counts = MinuteCounts {
            allowed: since(|it| it.allowed + it.unlimited),
            refused: since(Counts::refused),
            shadow_limited: since(|it| it.shadow_limited),
            degraded: since(|it| it.degraded),
        };
        records.count(now, counts);
    }

    /// Returns the number of refusals since the start.
    fn refused(&self) -> u64 {
        self.watcher.totals().refused()
    }

    /// Passes on the records since the last read.
    fn look(&mut self) {
        // Counted first, so that each refusal in the count is either read below or evicted.
        let refused = self.refused();
        if let Some(log) = &mut self.log {
            log.pass(self.clock.now());
        }
        for _ in 0..MAX_READS_PER_POLL {
            let Self { log, traces, logged, traced, records, .. } = self;
            logged.clear();
            traced.clear();
            // Most refusals are only counted, so they are selected before they are built.
            let page = self.watcher.select_records_after(self.seen, MAX_RECORDS_PER_READ, |head| {
                let is_logged = log.as_mut().is_some_and(|log| log.count(head));
                if is_logged {
                    logged.push(head.seq);
                }
                let is_traced = traces.as_ref().is_some_and(|traces| traces.wants(head));
                if is_traced {
                    traced.push(head.seq);
                }
                is_logged || is_traced || records.is_some()
            });
            self.seen = page.last.unwrap_or(self.seen);
            if page.missed > 0 {
                self.has_missed = true;
                if let Some(traces) = &self.traces {
                    traces.leave_out(page.missed);
                }
                if let Some(records) = &self.records {
                    records.drop_records(page.missed);
                }
            }
            for record in &page.records {
                if let Some(log) = &self.log
                    && self.logged.binary_search(&record.seq).is_ok()
                {
                    log.write(record);
                }
                if let Some(traces) = &self.traces
                    && self.traced.binary_search(&record.seq).is_ok()
                {
                    traces.queue(record);
                }
            }
            if let Some(writer) = &self.records {
                writer.append(page.records);
            }
            if page.read < MAX_RECORDS_PER_READ {
                if let (true, Some(log)) = (std::mem::take(&mut self.has_missed), &mut self.log) {
                    log.miss(refused);
                }
                return;
            }
        }
    }
}

fn every(span: Duration) -> Interval {
    let mut ticks = interval(span);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}
