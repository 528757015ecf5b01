//! The load: a fixed number of concurrent requests, or one at a time.
//!
//! Everything runs on one thread, like one thread of a server.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};

use super::IN_FLIGHT;
use crate::stopwatch;

/// Requests after which a task yields, even if it never had to wait.
const TURNS: u64 = 64;

/// A source of requests.
pub trait Caller: Send + Sync + 'static {
    /// Sends a request. A wrong answer is an error.
    fn ask(&self, task: usize, turn: u64) -> impl Future<Output = io::Result<()>> + Send;

    /// Returns the number of calls to Redis so far, if it differs from the number of requests.
    fn calls(&self) -> Option<u64> {
        None
    }
}

/// The result of a concurrent load.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Number of answers.
    pub answers: u64,
    /// Time until the last answer.
    pub time: Duration,
}

/// Keeps [`IN_FLIGHT`] requests in flight for this long.
pub async fn crowd(caller: &Arc<impl Caller>, time: Duration) -> io::Result<Done> {
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let start = stopwatch::mark();
    for task in 0..IN_FLIGHT {
        tasks.spawn(keep_asking(Arc::clone(caller), task, Arc::clone(&over)));
    }
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let mut answers = 0;
    while let Some(ended) = tasks.join_next().await {
        answers += ended.map_err(io::Error::other)??;
    }
    Ok(Done { answers, time: start.elapsed() })
}

async fn keep_asking(caller: Arc<impl Caller>, task: usize, over: Arc<AtomicBool>) -> io::Result<u64> {
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        caller.ask(task, turn).await?;
        turn += 1;
        if turn % TURNS == 0 {
            yield_now().await;
        }
    }
    Ok(turn)
}

/// Sends one request after the other, and returns the time of each.
pub async fn one_by_one(
    caller: &impl Caller,
    turns: impl Iterator<Item = u64>,
    took: &mut Vec<Duration>,
) -> io::Result<()> {
    for turn in turns {
        let start = stopwatch::mark();
        caller.ask(0, turn).await?;
        took.push(start.elapsed());
    }
    Ok(())
}
