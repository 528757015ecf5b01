//! Carries a batch to Redis.
//!
//! In: a batch, and since when its first request waits. Out: the reply of the script, or the
//! failure, before the deadline of the requests.
//!
//! `encoding` chooses the script and writes its arguments, `script` holds the scripts, `router`
//! chooses the server, and `link` holds the connection to it.
//!
//! A call that is sent and not answered in time continues in the background ([`LateCall`]), because
//! Redis may execute it later: its charges must be undone then.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Cmd;
use tokio::time::timeout;
use tollgate_core::Timestamp;
use tollgate_store::Clock as _;

use crate::batch::Batch;
use crate::counters::Counts;
use crate::encoding::encode;
use crate::failure::Failure;
use crate::reply::ScriptReply;
use crate::router::{Router, SentRequest, ServerReply};
use crate::shared::Shared;

/// The maximum number of attempts of a call whose calendar pages do not match the clock of Redis. A
/// page can end between two attempts, but not three times.
const MAX_PAGE_ATTEMPTS: usize = 3;

/// The connections of one thread to Redis.
pub(crate) struct Transport {
    shared: Arc<Shared>,
    router: Router,
}

/// The outcome of a call.
pub(crate) enum CallOutcome {
    /// The reply came in time.
    Reply(Batch, ScriptReply),
    /// There is no reply.
    Failed(Failure),
    /// The call was sent, and no reply came in time.
    Late(LateCall),
}

/// A call in the background: the batch, and its reply if one comes.
pub(crate) type LateCall = Pin<Box<dyn Future<Output = (Batch, Result<ScriptReply, Failure>)> + Send>>;

impl Transport {
    pub(crate) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), router: Router::new(shared) })
    }

    pub(crate) const fn router(&self) -> &Router {
        &self.router
    }

    /// Sends a batch of a queue and waits for the reply.
    pub(crate) async fn call(self: &Arc<Self>, queue: usize, batch: Batch, since: Timestamp) -> CallOutcome {
        let counters = &self.shared.counters;
        Counts::add(&counters.calls, 1);
        let outcome = self.call_in_time(queue, batch, since).await;
        if !matches!(outcome, CallOutcome::Reply(..)) {
            Counts::add(&counters.failures, 1);
        }
        outcome
    }

    async fn call_in_time(self: &Arc<Self>, queue: usize, batch: Batch, since: Timestamp) -> CallOutcome {
        let deadline = self.shared.settings.deadline;
        let left = deadline.saturating_sub(self.shared.clock.now().since(since).into());
        if left.is_zero() {
            return CallOutcome::Failed(Failure::refused(format!("Redis was busy for {deadline:?}")));
        }
        let sent = Arc::default();
        let mut call: LateCall = Box::pin(Arc::clone(self).run(queue, batch, Arc::clone(&sent)));
        match timeout(left, &mut call).await {
            Ok((batch, Ok(reply))) => CallOutcome::Reply(batch, reply),
            Ok((_, Err(failure))) => CallOutcome::Failed(failure),
            Err(_elapsed) => {
                let Some(sent) = sent.lock().unwrap_or_else(PoisonError::into_inner).take() else {
                    // An unsent call was not charged.
                    let why = format!("no connection to Redis within {deadline:?}");
                    return CallOutcome::Failed(Failure::refused(why));
                };
                self.router.silent(&sent);
                CallOutcome::Late(call)
            }
        }
    }

    async fn run(
        self: Arc<Self>,
        queue: usize,
        batch: Batch,
        sent: Arc<Mutex<Option<SentRequest>>>,
    ) -> (Batch, Result<ScriptReply, Failure>) {
        let reply = self.query(queue, &batch, &sent).await;
        (batch, reply)
    }

    /// Executes the script. `sent` is set to the destination after sending.
    async fn query(
        &self,
        queue: usize,
        batch: &Batch,
        sent: &Mutex<Option<SentRequest>>,
    ) -> Result<ScriptReply, Failure> {
        let mut expected_now = self.shared.redis_now();
        for _ in 0..MAX_PAGE_ATTEMPTS {
            let (script, arguments) = encode(batch, self.shared.scripts, expected_now);
            let sent_at = self.shared.clock.now();
            let by_hash = command("EVALSHA", &script.hash, batch, &arguments);
            let mut reply = self.router.query(queue, &by_hash, sent).await?;
            if matches!(reply, ServerReply::NoScript) {
                let by_text = command("EVAL", &script.text, batch, &arguments);
                reply = self.router.query(queue, &by_text, sent).await?;
            }
            let ServerReply::With(value) = reply else {
                return Err(Failure::refused("Redis does not know a script that it was just sent"));
            };
            let reply = ScriptReply::parse(value, sent_at)?;
            self.shared.redis_clock.record(reply.now, sent_at, self.shared.clock.now());
            if reply.has_executed {
                return Ok(reply);
            }
            expected_now = reply.now;
        }
        Err(Failure::refused("the clock of Redis left the calendar window in every attempt"))
    }
}

fn command(word: &str, script: &str, batch: &Batch, arguments: &[u8]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(word).arg(script).arg(batch.name_count());
    for name in batch.names() {
        command.arg(name);
    }
    command.arg(arguments);
    command
}
