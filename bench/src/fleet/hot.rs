//! The cost of a decision about a hot key: leased from Redis, against the in-memory store.
//!
//! Both are measured in turns by one thread, as a store and through a `Limiter`. A second thread renews the leases. A
//! decision that has to wait for Redis is counted with its wait.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::thread;

use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tollgate::{Call, Limiter, Policy};
use tollgate_core::{Rate, Span};
use tollgate_lease::Leased;
use tollgate_redis::RedisStore;
use tollgate_store::{Check, MemoryStore, Outcomes, Store};

use super::node::tend;
use super::{KEY, bucket, connect};
use crate::redis::instance::CALL_TIMEOUT;
use crate::redis::io_error;
use crate::stopwatch;

/// Decisions of one measurement.
const DECISIONS: u32 = 500_000;

/// The refill in a second, and the burst: more than a run consumes.
const AMPLE: (u64, u64) = (1_000_000, 2_000_000_000);

/// The lease.
const LEASE: Span = Span::from_millis(250);

/// The same limit as a policy.
const POLICY: &str =
    "limits: [{name: all, by: global, bucket: '1000000/second, burst 2000000000', lease: 250ms}]";

/// The fastest rounds, in nanoseconds per decision.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HotKey {
    /// The in-memory store.
    pub memory_ns: f64,
    /// The store with leases on Redis.
    pub leased_ns: f64,
    /// A limiter with the in-memory store.
    pub limiter_memory_ns: f64,
    /// A limiter with leases on Redis.
    pub limiter_leased_ns: f64,
    /// The share of decisions on Redis that leases answered.
    pub answered: f64,
}

/// Measures a hot key in this number of rounds.
pub fn measure(url: &str, rounds: usize) -> io::Result<HotKey> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = Arc::new(Leased::new(runtime.block_on(connect(&[url], CALL_TIMEOUT))?));
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    thread::scope(|scope| {
        let tended = &store;
        scope.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = tend(tended) => {}
                    _ = stopped => {}
                }
            });
        });
        let measured = compare(&store, &handle, rounds);
        // The receiver is gone only if the thread has panicked, which the scope reports.
        let _ = stop.send(());
        measured
    })
}

fn compare(store: &Arc<Leased<RedisStore>>, handle: &Handle, rounds: usize) -> io::Result<HotKey> {
    let memory = MemoryStore::new(1_000_000);
    let policy = || Policy::parse(POLICY).map_err(|error| io_error(&error));
    let in_memory = Limiter::with_store(policy()?, MemoryStore::new(1_000_000));
    let leased = Limiter::with_shared_store(policy()?, Arc::clone(store));
    let mut best = [f64::INFINITY; 4];
    let (mut waited, mut decided) = (0, 0);
    // The first round takes the first leases.
    for round in 0..=rounds {
        let measured = [
            spend(&memory, handle)?,
            spend(&**store, handle)?,
            decide(&in_memory, handle),
            decide(&leased, handle),
        ];
        if round > 0 {
            for (best, (ns, _)) in best.iter_mut().zip(measured) {
                *best = best.min(ns);
            }
            waited += measured[1].1 + measured[3].1;
            decided += 2 * DECISIONS;
        }
    }
    let [memory_ns, leased_ns, limiter_memory_ns, limiter_leased_ns] = best;
    let answered = 1.0 - f64::from(waited) / f64::from(decided.max(1));
    Ok(HotKey { memory_ns, leased_ns, limiter_memory_ns, limiter_leased_ns, answered })
}

/// Charges a store, and returns the nanoseconds of a decision and the number of decisions that waited.
fn spend(store: &impl Store, handle: &Handle) -> io::Result<(f64, u32)> {
    let (rate, burst) = AMPLE;
    let rule = bucket("hot", Rate::per_second(rate), burst, Some(LEASE))?;
    let checks = [Check::new(&rule, KEY, 1)];
    Ok(time(|| {
        let mut outcomes = Outcomes::new();
        if black_box(store).try_decide(black_box(&checks), &mut outcomes).is_some() {
            return false;
        }
        _ = handle.block_on(store.decide_uncached(&checks));
        true
    }))
}

/// Decides about a call, and returns the nanoseconds of a decision and the number of decisions that waited.
fn decide<S: Store>(limiter: &Limiter<S>, handle: &Handle) -> (f64, u32) {
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]);
    time(|| match black_box(limiter).try_decide(black_box(&call), |it| black_box(it).is_allowed()) {
        Ok(_) => false,
        Err(pending) => {
            _ = handle.block_on(pending.finish(Some(&call)));
            true
        }
    })
}

/// Runs decisions that tell whether they waited.
fn time(mut decide: impl FnMut() -> bool) -> (f64, u32) {
    let (waited, took) = stopwatch::time(|| (0..DECISIONS).map(|_| u32::from(decide())).sum());
    (took.as_secs_f64() * 1e9 / f64::from(DECISIONS), waited)
}
