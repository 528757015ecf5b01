//! Sends decisions as spans to a collector: OTLP over HTTP, in JSON.
//!
//! Spans wait in a bounded queue. A span that finds the queue full is dropped and counted, and so is a
//! batch that the collector refuses. No request waits for a collector.
//!
//! - `otlp`: the encoding of a batch.
//!
//! The selection of decisions is in `tollgate_telemetry`, HTTP in `http_sender`.

mod otlp;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tollgate_telemetry::{Record, RecordHead};

use self::otlp::Writer;
use crate::configuration::TraceSettings;
use crate::failure::Failure;
use crate::http_sender::{HttpSender, SendError};

/// The maximum number of spans in one message.
const MAX_BATCH_SPANS: usize = 512;
/// The time that a span waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of queued spans.
const MAX_QUEUED_SPANS: usize = 8 * MAX_BATCH_SPANS;
/// The delay before the first retry, which doubles each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The maximum number of attempts for a batch.
const MAX_ATTEMPTS: u32 = 6;
/// The time that the end waits for the last batch.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The path of the collector for spans, below its endpoint.
const TRACES_PATH: &str = "/v1/traces";

/// Sends spans.
pub(crate) struct Traces {
    queue: mpsc::Sender<Arc<Record>>,
    one_in: u32,
    /// The counters for metrics.
    counts: Arc<TraceCounts>,
    sending: JoinHandle<()>,
}

/// Counters of sent and dropped spans.
#[derive(Debug, Default)]
pub(crate) struct TraceCounts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl TraceCounts {
    /// Returns the numbers of sent and of dropped spans.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    fn lose(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

impl Traces {
    /// Starts the task; needs a runtime.
    pub(crate) fn start(
        settings: &TraceSettings,
        node: &str,
        counts: Arc<TraceCounts>,
    ) -> Result<Self, Failure> {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_SPANS);
        let sender = Sender {
            http: HttpSender::new(&settings.collector)?,
            writer: Writer::new(&settings.service, node),
            counts: Arc::clone(&counts),
            is_failing: false,
        };
        Ok(Self { queue, one_in: settings.one_in, counts, sending: tokio::spawn(sender.run(waiting)) })
    }

    /// Selects refusals, sampled traces, and one in `one_in` of the rest, by the same rule as the watcher.
    pub(crate) fn wants(&self, head: &RecordHead) -> bool {
        !head.allowed || head.is_trace_sampled || head.id.0.checked_rem(self.one_in.into()) == Some(0)
    }

    /// Queues a decision that it [`wants`](Self::wants), if there is room.
    pub(crate) fn queue(&self, record: &Arc<Record>) {
        if self.queue.try_send(Arc::clone(record)).is_err() {
            self.counts.lose(1);
        }
    }

    /// Counts decisions that were evicted before they were read.
    pub(crate) fn leave_out(&self, count: u64) {
        self.counts.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Sends the queued spans, within a short time.
    pub(crate) async fn end(self) {
        let Self { queue, sending, .. } = self;
        drop(queue);
        let stop = sending.abort_handle();
        if timeout(SHUTDOWN_TIMEOUT, sending).await.is_err() {
            stop.abort();
        }
    }
}

struct Sender {
    http: HttpSender,
    writer: Writer,
    counts: Arc<TraceCounts>,
    /// Logs an unavailable collector only once.
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut waiting: mpsc::Receiver<Arc<Record>>) {
        let mut batch = Vec::with_capacity(MAX_BATCH_SPANS);
        while waiting.recv_many(&mut batch, MAX_BATCH_SPANS).await > 0 {
            if batch.len() < MAX_BATCH_SPANS {
                let gather = async {
                    while batch.len() < MAX_BATCH_SPANS {
                        let room = MAX_BATCH_SPANS - batch.len();
                        if waiting.recv_many(&mut batch, room).await == 0 {
                            break;
                        }
                    }
                };
                // On a timeout, the batch keeps the spans that have arrived.
                let _full = timeout(BATCH_DELAY, gather).await;
            }
            self.send(&batch).await;
            batch.clear();
        }
    }

    async fn send(&mut self, batch: &[Arc<Record>]) {
        let written = self.writer.write(batch);
        let mut pause = FIRST_RETRY_DELAY;
        for attempt in 1..=MAX_ATTEMPTS {
            let why = match self.http.post(TRACES_PATH, written.clone()).await {
                Ok(()) => {
                    self.counts.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the collector of traces takes spans again");
                    }
                    return;
                }
                Err(why) => why,
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                let collector = self.http.endpoint();
                tracing::warn!(%collector, %why, "the collector of traces takes no spans");
            }
            if attempt == MAX_ATTEMPTS || matches!(why, SendError::Refused(_)) {
                break;
            }
            sleep(pause).await;
            pause *= 2;
        }
        self.counts.lose(batch.len());
    }
}
