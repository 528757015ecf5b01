//! Requests with three limits on a Redis Cluster: one key of their own, a tenant and a global limit.
//!
//! Without leases, such a request spans partitions: it reserves in one and then in the others. With leases, only the
//! key of its own is asked for.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;
use tollgate_core::{Rate, Rule, Span};
use tollgate_lease::Leased;
use tollgate_redis::RedisStore;
use tollgate_store::{Check, Store as _};
use tollgate_testkit::RedisCluster;

use super::node::tend;
use super::{KEY, bucket, connect};
use crate::process::Family;
use crate::redis::instance::CALL_TIMEOUT;
use crate::redis::io_error;
use crate::stopwatch;

/// Concurrent requests: so many that requests of different users share calls, and few.
const SHARED_IN_FLIGHT: u32 = 256;
const SPARSE_IN_FLIGHT: u32 = 16;

/// Users; each of them is cold.
const USERS: u32 = 100_000;

/// The lease of the tenant and of the global limit.
const LEASE: Span = Span::from_millis(250);

/// The throughput of one client.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Requests in a second.
    pub per_second: f64,
    /// Calls to the cluster for each request.
    pub calls: f64,
    /// CPU time of all nodes of the cluster for a request, in microseconds.
    pub redis_us: f64,
    /// CPU time of the client for a request, in microseconds.
    pub client_us: f64,
}

/// Both variants.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClusterRow {
    /// Without leases.
    pub exact: Throughput,
    /// With leases on the tenant and the global limit.
    pub leased: Throughput,
    /// Without leases, with few concurrent requests.
    pub exact_few: Throughput,
    /// With leases, with few concurrent requests.
    pub leased_few: Throughput,
}

/// Measures both variants on a cluster.
pub fn measure(cluster: &RedisCluster, length: Duration) -> io::Result<ClusterRow> {
    let urls = cluster.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = |in_flight, lease| {
        runtime.block_on(LocalSet::new().run_until(load(cluster, &urls, in_flight, lease, length)))
    };
    Ok(ClusterRow {
        exact: run(SHARED_IN_FLIGHT, None)?,
        leased: run(SHARED_IN_FLIGHT, Some(LEASE))?,
        exact_few: run(SPARSE_IN_FLIGHT, None)?,
        leased_few: run(SPARSE_IN_FLIGHT, Some(LEASE))?,
    })
}

/// The limits of a request.
struct Limits {
    user: Rule,
    tenant: Rule,
    global: Rule,
}

/// Returns the CPU time of the cluster, and of this process.
fn cpu_times(cluster: &RedisCluster) -> io::Result<[Duration; 2]> {
    let mut redis = Duration::ZERO;
    for node in 0..6 {
        redis += Family::of(cluster.node(node).id())?.time()?.busy();
    }
    // The cluster, and another Redis that is idle meanwhile, are children of this process.
    let all = Family::of(std::process::id())?.time()?.busy();
    Ok([redis, all.saturating_sub(redis)])
}

async fn load(
    cluster: &RedisCluster,
    urls: &[&str],
    in_flight: u32,
    lease: Option<Span>,
    length: Duration,
) -> io::Result<Throughput> {
    let ample = |name| bucket(name, Rate::per_second(1_000_000), 1_000_000_000, lease);
    let user = bucket("user", Rate::per_minute(1_000), 1_000, None)?;
    let limits = Rc::new(Limits { user, tenant: ample("tenant")?, global: ample("global")? });
    let store = Rc::new(Leased::new(connect(urls, CALL_TIMEOUT).await?));
    let tended = Rc::clone(&store);
    let tending = tokio::task::spawn_local(async move { tend(&tended).await });
    // The first requests connect and take the first leases.
    send(&store, &limits, in_flight, Duration::from_millis(500)).await?;
    let calls = store.inner().counters().calls;
    let before = cpu_times(cluster)?;
    let start = stopwatch::mark();
    let requests = send(&store, &limits, in_flight, length).await?;
    let took = start.elapsed();
    let after = cpu_times(cluster)?;
    let calls = store.inner().counters().calls - calls;
    tending.abort();
    store.drain().await;
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let [requests, calls] = [requests as f64, calls as f64];
    let cpu_us = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64() * 1e6 / requests.max(1.0);
    Ok(Throughput {
        per_second: requests / took.as_secs_f64(),
        calls: calls / requests.max(1.0),
        redis_us: cpu_us(0),
        client_us: cpu_us(1),
    })
}

/// Sends requests for this time, and returns their number.
async fn send(
    store: &Rc<Leased<RedisStore>>,
    limits: &Rc<Limits>,
    in_flight: u32,
    length: Duration,
) -> io::Result<u64> {
    let mut tasks = JoinSet::new();
    for task in 0..in_flight {
        let (store, limits) = (Rc::clone(store), Rc::clone(limits));
        tasks.spawn_local(async move {
            let (start, mut requests, mut user) = (stopwatch::mark(), 0_u64, task);
            while start.elapsed() < length {
                user = (user + in_flight) % USERS;
                let name = user.to_le_bytes();
                let checks = [
                    Check::new(&limits.user, &name, 1),
                    Check::new(&limits.tenant, b"acme", 1),
                    Check::new(&limits.global, KEY, 1),
                ];
                let answer = timeout(CALL_TIMEOUT, store.decide(&checks)).await.map_err(io::Error::other)?;
                let answer = answer.map_err(|error| io_error(&error))?;
                if !answer.admitted {
                    return Err(io::Error::other(format!("an ample limit refused: {answer:?}")));
                }
                requests += 1;
                // A decision from leases does not wait, and other tasks have to run.
                tokio::task::yield_now().await;
            }
            Ok(requests)
        });
    }
    let mut sum = 0;
    while let Some(requests) = tasks.join_next().await {
        sum += requests.map_err(io::Error::other)??;
    }
    Ok(sum)
}
