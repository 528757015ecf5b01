//! A node of a fleet: a store with leases on its own thread, and requests at a constant rate.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate_core::Rule;
use tollgate_lease::Leased;
use tollgate_redis::RedisStore;
use tollgate_store::{Check, Outcomes, Store as _};

use super::{KEY, connect};
use crate::stopwatch;

/// Requests of one node.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests in a millisecond.
    pub per_millisecond: u32,
    /// The time for which they are sent.
    pub length: Duration,
    /// The time after which requests are also counted apart.
    pub settled: Duration,
    /// The longest time of a call to Redis.
    pub deadline: Duration,
}

/// Answers to the requests of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Admitted requests.
    pub admitted: u64,
    /// Requests that were admitted in the last part of the load.
    pub settled: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests that waited for Redis.
    pub waited: u64,
    /// Requests of the last part of the load.
    pub settled_requests: u64,
    /// Requests that waited for Redis in the last part of the load.
    pub settled_waited: u64,
    /// Requests that Redis did not answer in time: an outage rule would have decided them.
    pub failed: u64,
}

impl Tally {
    /// Returns the number of requests.
    pub const fn requests(&self) -> u64 {
        self.admitted + self.refused + self.failed
    }

    fn count(&mut self, admitted: bool, is_settled: bool) {
        if admitted {
            self.admitted += 1;
        } else {
            self.refused += 1;
        }
        self.settled += u64::from(admitted && is_settled);
    }

    const fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.settled += other.settled;
        self.refused += other.refused;
        self.waited += other.waited;
        self.settled_requests += other.settled_requests;
        self.settled_waited += other.settled_waited;
        self.failed += other.failed;
    }
}

/// Runs several nodes with the same load, calls `meanwhile`, and returns the sum of their answers, with the time
/// from the first request to the last answer.
pub fn run(
    url: &str,
    nodes: usize,
    rule: &Rule,
    load: Load,
    meanwhile: impl FnOnce() -> io::Result<()>,
) -> io::Result<(Tally, Duration)> {
    let start = stopwatch::mark();
    thread::scope(|scope| {
        let node = || run_node(url, rule, load, || start.elapsed());
        let nodes: Vec<_> = (0..nodes).map(|_| scope.spawn(node)).collect();
        let done = meanwhile();
        let (mut sum, mut first, mut last) = (Tally::default(), Duration::MAX, Duration::ZERO);
        for node in nodes {
            let (tally, from, to) = node.join().map_err(|_| io::Error::other("a node panicked"))??;
            sum.add(&tally);
            (first, last) = (first.min(from), last.max(to));
        }
        done.map(|()| (sum, last.saturating_sub(first)))
    })
}

fn run_node(
    url: &str,
    rule: &Rule,
    load: Load,
    elapsed: impl Fn() -> Duration,
) -> io::Result<(Tally, Duration, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let store = Rc::new(Leased::new(connect(&[url], load.deadline).await?));
        let background = tokio::task::spawn_local(maintain(Rc::clone(&store)));
        let from = elapsed();
        let tally = send(&store, rule, load).await;
        let to = elapsed();
        background.abort();
        store.drain().await;
        Ok((tally, from, to))
    }))
}

/// Renews leases and announces the node.
async fn maintain(store: Rc<Leased<RedisStore>>) {
    tokio::join!(store.inner().announce(), tend(&store));
}

/// Renews and returns leases until dropped.
pub async fn tend(store: &Leased<RedisStore>) {
    loop {
        match store.tend().await {
            Some(span) => _ = timeout(span.into(), store.due()).await,
            None => store.due().await,
        }
    }
}

async fn send(store: &Rc<Leased<RedisStore>>, rule: &Rule, load: Load) -> Tally {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let mut waiting = JoinSet::new();
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let rule = Rc::new(rule.clone());
    for millisecond in 0..load.length.as_millis() {
        ticks.tick().await;
        let is_settled = millisecond >= load.settled.as_millis();
        for _ in 0..load.per_millisecond {
            let mut outcomes = Outcomes::new();
            tally.borrow_mut().settled_requests += u64::from(is_settled);
            if let Some((admitted, _)) = store.try_decide(&[Check::new(&rule, KEY, 1)], &mut outcomes) {
                tally.borrow_mut().count(admitted, is_settled);
                continue;
            }
            tally.borrow_mut().waited += 1;
            tally.borrow_mut().settled_waited += u64::from(is_settled);
            let (store, rule, tally) = (Rc::clone(store), Rc::clone(&rule), Rc::clone(&tally));
            waiting.spawn_local(async move {
                match store.decide_uncached(&[Check::new(&rule, KEY, 1)]).await {
                    Ok(answer) => tally.borrow_mut().count(answer.admitted, is_settled),
                    Err(_) => tally.borrow_mut().failed += 1,
                }
            });
        }
    }
    while waiting.join_next().await.is_some() {}
    *tally.borrow()
}
