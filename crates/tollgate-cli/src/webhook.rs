//! Tells somebody when a key has had nothing left for long, and when it has again.
//!
//! One message when an alert starts and one when it ends, each tried a few times. The
//! queue has an end, and so has the number of messages in a minute: thousands of keys at
//! zero are one incident, and whoever is woken by it needs no thousand messages.
//!
//! Not here: noticing it (`tollgate_watch`), HTTP (`outgoing`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate::Timestamp;
use tollgate_watch::AtZero;

use crate::configuration::Receiver;
use crate::failure::Failure;
use crate::outgoing::{NotSent, Outgoing};

/// The most messages that wait.
const QUEUE: usize = 100;
/// The most messages in a minute.
const A_MINUTE: u32 = 60;
/// Between two attempts, at first: each time it is twice as long.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a message is tried before it is given up.
const ATTEMPTS: u32 = 5;
/// How long the end waits for messages under way.
const AT_END: Duration = Duration::from_secs(1);

/// Tells somebody of alerts.
pub(crate) struct Webhook {
    node: String,
    /// Those it was told of, by the spot of the allowance.
    told: HashMap<u64, AtZero>,
    queue: mpsc::Sender<Bytes>,
    counts: Arc<WebhookCounts>,
    sending: JoinHandle<()>,
}

/// What became of the messages.
#[derive(Debug, Default)]
pub(crate) struct WebhookCounts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl WebhookCounts {
    /// Taken, and dropped.
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
        let (queue, waiting) = mpsc::channel(QUEUE);
        let sending = send_all(Outgoing::new(receiver)?, waiting, Arc::clone(&counts));
        let sending = tokio::spawn(sending);
        Ok(Self { node: node.to_owned(), told: HashMap::new(), queue, counts, sending })
    }

    /// These are the alerts now: tells of those that are new, and of those that are over.
    pub(crate) fn see(&mut self, alerts: &[AtZero], now: Timestamp) {
        for alert in alerts {
            if let Some(known) = self.told.get_mut(&alert.spot) {
                known.clone_from(alert);
            } else if self.say("firing", alert, now) {
                self.told.insert(alert.spot, alert.clone());
            }
        }
        let over = |spot: &u64| !alerts.iter().any(|it| it.spot == *spot);
        let over: Vec<_> = self.told.keys().copied().filter(over).collect();
        for spot in over {
            if let Some(alert) = self.told.remove(&spot) {
                self.say("resolved", &alert, now);
            }
        }
    }

    /// Sends what waits, for a moment.
    pub(crate) async fn end(self) {
        drop(self.queue);
        let stop = self.sending.abort_handle();
        if timeout(AT_END, self.sending).await.is_err() {
            stop.abort();
        }
    }

    /// Whether there was room for it.
    fn say(&self, status: &str, alert: &AtZero, now: Timestamp) -> bool {
        let said = json!({
            "status": status,
            "limit": &*alert.limit,
            "key": &*alert.key,
            "since": date(alert.since),
            "for_s": now.since(alert.since).as_micros() / 1_000_000,
            "refused": alert.refused,
            "node": self.node,
        });
        let fits = self.queue.try_send(said.to_string().into()).is_ok();
        if !fits {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }
}

fn date(at: Timestamp) -> Option<String> {
    let micros = i64::try_from(at.as_micros()).ok()?;
    jiff::Timestamp::from_microsecond(micros).ok().map(|at| at.to_string())
}

async fn send_all(mut outgoing: Outgoing, mut waiting: mpsc::Receiver<Bytes>, counts: Arc<WebhookCounts>) {
    let mut is_failing = false;
    let (mut minute, mut sent) = (Instant::now(), 0);
    while let Some(message) = waiting.recv().await {
        if minute.elapsed() >= Duration::from_secs(60) {
            (minute, sent) = (Instant::now(), 0);
        } else if sent == A_MINUTE {
            sleep_until(minute + Duration::from_secs(60)).await;
            (minute, sent) = (Instant::now(), 0);
        }
        sent += 1;
        let delivered = send(&mut outgoing, message, &mut is_failing).await;
        let count = if delivered { &counts.sent } else { &counts.dropped };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn send(outgoing: &mut Outgoing, message: Bytes, is_failing: &mut bool) -> bool {
    let mut pause = AGAIN;
    for attempt in 1..=ATTEMPTS {
        let why = match outgoing.post("", message.clone()).await {
            Ok(()) => {
                *is_failing = false;
                return true;
            }
            Err(why) => why,
        };
        if !std::mem::replace(is_failing, true) {
            let webhook = outgoing.endpoint();
            tracing::warn!(%webhook, %why, "an alert could not be told");
        }
        if attempt == ATTEMPTS || matches!(why, NotSent::Refused(_)) {
            break;
        }
        sleep(pause).await;
        pause *= 2;
    }
    false
}
