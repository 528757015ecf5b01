//! Whoever asks: a crowd that keeps so many questions in flight, or one at a time.
//!
//! Everything runs on one thread, as one thread of a server does.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};

use super::IN_FLIGHT;
use crate::stopwatch;

/// Turns after which a task lets others have theirs, though it never had to wait.
const TURNS: u64 = 64;

/// Somebody who asks.
pub trait Caller: Send + Sync + 'static {
    /// Asks once. An answer that is not the right one is an error.
    fn ask(&self, task: usize, turn: u64) -> impl Future<Output = io::Result<()>> + Send;

    /// Calls to Redis so far, if these are not as many as questions.
    fn calls(&self) -> Option<u64> {
        None
    }
}

/// What a crowd got done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Questions that were answered.
    pub asked: u64,
    /// Until the last answer.
    pub time: Duration,
}

/// Keeps [`IN_FLIGHT`] questions in flight for this long.
pub async fn crowd(caller: &Arc<impl Caller>, time: Duration) -> io::Result<Done> {
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let start = stopwatch::mark();
    for task in 0..IN_FLIGHT {
        tasks.spawn(keep_asking(Arc::clone(caller), task, Arc::clone(&over)));
    }
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let mut asked = 0;
    while let Some(ended) = tasks.join_next().await {
        asked += ended.map_err(io::Error::other)??;
    }
    Ok(Done { asked, time: start.elapsed() })
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

/// Asks one question after the other, and says how long each took.
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
