//! Tells somebody when a key has had nothing left for long, and when it has again.
//!
//! One message when an alert starts and one when it ends. What waits is not a message but
//! an alert (`alert_queue`): what is said of it is what holds when it is sent, so nobody is told of
//! an alert that is over, and whoever was told of one is told of its end. A receiver that
//! is away is tried again until it takes the message. The number of messages in a minute
//! has an end: thousands of keys at zero are one incident, and whoever is woken by it needs
//! no thousand messages.
//!
//! Not here: noticing it (`tollgate_telemetry`), HTTP (`http_sender`).

mod alert_queue;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate::{Clock, SystemClock, Timestamp};
use tollgate_telemetry::ExhaustedKey;

use self::alert_queue::{AlertQueue, Message};
use crate::configuration::Receiver;
use crate::failure::Failure;
use crate::http_sender::{HttpSender, SendError};

/// The most messages in a minute, those that did not arrive among them.
const MAX_MESSAGES_PER_MINUTE: u32 = 60;
/// Between two attempts, at first: each time it is twice as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// And at most.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// How long the end waits for messages under way.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Tells somebody of alerts.
pub(crate) struct Webhook {
    shared: Arc<Shared>,
    sending: JoinHandle<()>,
}

/// What was noticed, for whoever sends it.
struct Shared {
    node: String,
    alert_queue: Mutex<AlertQueue>,
    /// There is something to send, or no more will come.
    changed: Notify,
    counts: Arc<WebhookCounts>,
}

/// What became of the alerts.
#[derive(Debug, Default)]
pub(crate) struct WebhookCounts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl WebhookCounts {
    /// Messages that were taken, and alerts that were not told.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

impl Webhook {
    /// Begins; needs a runtime.
    pub(crate) fn start(
        receiver: &Receiver,
        node: &str,
        counts: Arc<WebhookCounts>,
    ) -> Result<Self, Failure> {
        let shared =
            Shared { node: node.to_owned(), alert_queue: Mutex::default(), changed: Notify::new(), counts };
        let shared = Arc::new(shared);
        let sender = Sender {
            shared: Arc::clone(&shared),
            sender: HttpSender::new(receiver)?,
            clock: SystemClock::new(),
            is_failing: false,
        };
        Ok(Self { shared, sending: tokio::spawn(sender.run()) })
    }

    /// These are the alerts now.
    pub(crate) fn see(&self, alerts: &[ExhaustedKey], now: Timestamp) {
        self.shared.alert_queue().see(alerts, now);
        self.shared.count_untold();
        self.shared.changed.notify_one();
    }

    /// Sends what waits, for a moment.
    pub(crate) async fn end(self) {
        self.shared.alert_queue().close();
        self.shared.changed.notify_one();
        let stop = self.sending.abort_handle();
        if timeout(SHUTDOWN_TIMEOUT, self.sending).await.is_err() {
            stop.abort();
        }
    }
}

impl Shared {
    /// Whoever panicked over it has left a book that can be read.
    fn alert_queue(&self) -> MutexGuard<'_, AlertQueue> {
        self.alert_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_untold(&self) {
        self.counts.dropped.store(self.alert_queue().untold(), Ordering::Relaxed);
    }

    /// The next to be told of; `None`: there will be none.
    async fn next(&self) -> Option<u64> {
        loop {
            {
                let mut alert_queue = self.alert_queue();
                if let Some(key_hash) = alert_queue.next() {
                    return Some(key_hash);
                }
                if alert_queue.is_closed() {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn text(&self, message: &Message, now: Timestamp) -> String {
        let Message { alert, over } = message;
        let said = json!({
            "status": if over.is_some() { "resolved" } else { "firing" },
            "limit": &*alert.limit,
            "key": &*alert.key,
            "tag": format!("{:016x}", alert.tag),
            "since": date(alert.since),
            "for_s": over.unwrap_or(now).since(alert.since).as_micros() / 1_000_000,
            "refused": alert.refused,
            "node": self.node,
        });
        said.to_string()
    }
}

fn date(at: Timestamp) -> Option<String> {
    let micros = i64::try_from(at.as_micros()).ok()?;
    jiff::Timestamp::from_microsecond(micros).ok().map(|at| at.to_string())
}

struct Sender {
    shared: Arc<Shared>,
    sender: HttpSender,
    clock: SystemClock,
    /// So that a receiver that is away is told of once.
    is_failing: bool,
}

impl Sender {
    async fn run(mut self) {
        let (mut minute, mut tried, mut pause) = (Instant::now(), 0, FIRST_RETRY_DELAY);
        while let Some(key_hash) = self.shared.next().await {
            if minute.elapsed() >= Duration::from_secs(60) {
                (minute, tried) = (Instant::now(), 0);
            } else if tried == MAX_MESSAGES_PER_MINUTE {
                sleep_until(minute + Duration::from_secs(60)).await;
                (minute, tried) = (Instant::now(), 0);
            }
            // What holds now, after all the waiting.
            let Some(message) = self.shared.alert_queue().message(key_hash) else { continue };
            tried += 1;
            if self.send(key_hash, &message).await {
                pause = FIRST_RETRY_DELAY;
            } else {
                sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
    }

    /// Whether it needs no other attempt.
    async fn send(&mut self, key_hash: u64, message: &Message) -> bool {
        let text = self.shared.text(message, self.clock.now());
        let result = self.sender.post("", text.into()).await;
        let Err(why) = result else {
            self.shared.counts.sent.fetch_add(1, Ordering::Relaxed);
            self.shared.alert_queue().told(key_hash, message);
            if std::mem::take(&mut self.is_failing) {
                tracing::info!("alerts are told again");
            }
            return true;
        };
        if !std::mem::replace(&mut self.is_failing, true) {
            let webhook = self.sender.endpoint();
            tracing::warn!(%webhook, %why, "an alert could not be told");
        }
        if let SendError::Failed(_) = why {
            self.shared.alert_queue().again(key_hash);
            return false;
        }
        self.shared.alert_queue().give_up(key_hash, message);
        self.shared.count_untold();
        true
    }
}
