//! Runs a load: the arrivals, the requests, and the retries after them.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::select;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{Clock, Sleeper, SystemClock, Timestamp};
use tollgate_client::{Call, Client, Error};

use crate::arrivals::Arrivals;
use crate::plan::{LoadPlan, Manner};
use crate::report::LoadReport;
use crate::retry_check;
use crate::sender::{Head, SendError, Sender};
use crate::tally::{Attempt, Tally};

/// The reason why a load has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The request cannot be written.
    #[error("the request is not valid")]
    Request(#[source] http::Error),
    /// No request had a response.
    #[error("no request had a response: {0}")]
    NoResponse(String),
}

/// Runs a load. It ends early when `stop` is ready, with the report of the requests sent so far.
pub async fn run(plan: LoadPlan, stop: impl Future<Output = ()>) -> Result<LoadReport, RunError> {
    let sender = Sender::new(&plan).map_err(RunError::Request)?;
    let load = Arc::new(Load::new(plan, sender));
    let mut workers = JoinSet::new();
    for _ in 0..load.plan.connections {
        let load = Arc::clone(&load);
        workers.spawn(async move { load.work().await });
    }
    select! {
        () = load.arrivals.release(&load.clock) => {}
        () = stop => {}
    }
    let arrivals = load.arrivals.stop(load.plan.connections);
    while workers.join_next().await.is_some() {}
    let seconds = Duration::from(load.clock.now().since(load.start)).as_secs_f64();
    let mut tally = std::mem::replace(&mut *load.tally(), Tally::new());
    if let Some(example) = tally.failed_entirely() {
        return Err(RunError::NoResponse(example.to_owned()));
    }
    if load.plan.manner == Manner::Hammer && tally.refused > 0 {
        let mut report = std::mem::take(&mut tally.retry_after);
        let observe = |head: &Head, sent_at| {
            tally.observe(head, sent_at, load.clock.now());
        };
        retry_check::check(&load.plan, &load.sender, &load.clock, &mut report, observe).await;
        tally.retry_after = report;
    }
    Ok(tally.into_report(arrivals, seconds))
}

/// The state that all requests of a load share.
struct Load {
    plan: LoadPlan,
    sender: Sender,
    client: Client,
    clock: SystemClock,
    start: Timestamp,
    arrivals: Arrivals,
    tally: Mutex<Tally>,
}

impl Load {
    fn new(plan: LoadPlan, sender: Sender) -> Self {
        let client = Client::builder()
            .settings(|it| it.timeout = plan.max_wait.max(plan.timeout))
            .sleeper(Sleeper::new(sleep))
            .build();
        let clock = SystemClock::new();
        let start = clock.now();
        let arrivals = Arrivals::new(plan.clone(), start);
        Self { plan, sender, client, clock, start, arrivals, tally: Mutex::new(Tally::new()) }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends arrivals, one at a time, until there are no more.
    async fn work(&self) {
        let deadline = self.start + self.plan.duration.into() + self.plan.timeout.into();
        while let Some(due) = self.arrivals.take().await {
            let now = self.clock.now();
            if now > deadline {
                self.tally().unsent(now.since(due));
                continue;
            }
            match self.plan.manner {
                Manner::Hammer => {
                    let status = self.attempt(false).await.0.ok().map(|head| head.status);
                    self.tally().arrival(self.clock.now().since(due), status);
                }
                Manner::Respect => self.call(due).await,
            }
        }
    }

    /// Sends one request. Returns its result, and whether it was refused.
    async fn attempt(&self, is_retry: bool) -> (Result<Head, SendError>, bool) {
        let sent_at = self.clock.now();
        let result = self.sender.send().await;
        let attempt = Attempt { sent_at, received_at: self.clock.now(), is_retry, result: result.as_ref() };
        let is_refusal = self.tally().attempt(&attempt);
        (result, is_refusal)
    }

    /// Makes one call under the limits of the server.
    async fn call(&self, due: Timestamp) {
        let request = self.sender.request();
        let call = Call::new(request.method(), request.uri(), request.headers());
        let was_refused = AtomicBool::new(false);
        let answer = self.client.call(&call, |_| async {
            let (result, is_refusal) = self.attempt(was_refused.load(Ordering::Relaxed)).await;
            was_refused.store(is_refusal, Ordering::Relaxed);
            result
        });
        let answer = answer.await;
        let latency = self.clock.now().since(due);
        match answer {
            Ok(head) => self.tally().arrival(latency, Some(head.status)),
            Err(Error::GaveUp(_)) => self.tally().gave_up(latency),
            Err(_) => self.tally().arrival(latency, None),
        }
    }
}
