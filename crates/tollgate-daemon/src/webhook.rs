//! Sends a message when a key has been exhausted for long, and another when it recovers.
//!
//! The queue holds alerts and not messages (`alert_queue`): a message is built when it is sent, so it
//! is current, and a receiver that was notified of an alert is also notified of its end. Messages are
//! retried until the receiver accepts them. The number of messages per minute is bounded, because
//! thousands of exhausted keys are usually one incident.
//!
//! Detection is in `tollgate_telemetry`, HTTP in `http_sender`.

mod alert_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
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

/// The maximum number of messages in a minute, including failed attempts.
const MAX_MESSAGES_PER_MINUTE: u32 = 60;
/// The delay before the first retry, which doubles each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum delay before a retry.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The time that the end waits for messages in flight.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends alerts to a webhook.
pub(crate) struct Webhook {
    shared: Arc<Shared>,
    sending: JoinHandle<()>,
}

/// The state shared with the sending task.
struct Shared {
    node: String,
    alert_queue: Mutex<AlertQueue>,
    /// Notified when there is a message to send, or when the queue is closed.
    changed: Notify,
    counts: Arc<WebhookCounts>,
}

/// Counters of alerts.
#[derive(Debug, Default)]
pub(crate) struct WebhookCounts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl WebhookCounts {
    /// Returns the numbers of sent messages and of alerts that were not sent.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

impl Webhook {
    /// Starts the task; needs a runtime.
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
            http: HttpSender::new(receiver)?,
            clock: SystemClock::new(),
            is_failing: false,
        };
        Ok(Self { shared, sending: tokio::spawn(sender.run()) })
    }

    /// Updates the current alerts.
    pub(crate) fn see(&self, alerts: &[ExhaustedKey], now: Timestamp) {
        self.shared.alert_queue.lock().see(alerts, now);
        self.shared.count_dropped();
        self.shared.changed.notify_one();
    }

    /// Sends the queued messages, within a short time.
    pub(crate) async fn end(self) {
        self.shared.alert_queue.lock().close();
        self.shared.changed.notify_one();
        let stop = self.sending.abort_handle();
        if timeout(SHUTDOWN_TIMEOUT, self.sending).await.is_err() {
            stop.abort();
        }
    }
}

impl Shared {
    fn count_dropped(&self) {
        self.counts.dropped.store(self.alert_queue.lock().dropped(), Ordering::Relaxed);
    }

    /// Waits for the next alert to send; `None` when the queue is closed.
    async fn next(&self) -> Option<u64> {
        loop {
            {
                let mut alert_queue = self.alert_queue.lock();
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
    http: HttpSender,
    clock: SystemClock,
    /// Logs an unavailable receiver only once.
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
            // Built after the wait, so that the message is current.
            let Some(message) = self.shared.alert_queue.lock().message(key_hash) else { continue };
            tried += 1;
            if self.send(key_hash, &message).await {
                pause = FIRST_RETRY_DELAY;
            } else {
                sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
    }

    /// Sends a message; returns false if it must be retried.
    async fn send(&mut self, key_hash: u64, message: &Message) -> bool {
        let text = self.shared.text(message, self.clock.now());
        let result = self.http.post("", text.into()).await;
        let Err(why) = result else {
            self.shared.counts.sent.fetch_add(1, Ordering::Relaxed);
            self.shared.alert_queue.lock().sent(key_hash, message);
            if std::mem::take(&mut self.is_failing) {
                tracing::info!("alerts are delivered again");
            }
            return true;
        };
        if !std::mem::replace(&mut self.is_failing, true) {
            let webhook = self.http.endpoint();
            tracing::warn!(%webhook, %why, "an alert could not be delivered");
        }
        if let SendError::Failed(_) = why {
            self.shared.alert_queue.lock().again(key_hash);
            return false;
        }
        self.shared.alert_queue.lock().give_up(key_hash, message);
        self.shared.count_dropped();
        true
    }
}
