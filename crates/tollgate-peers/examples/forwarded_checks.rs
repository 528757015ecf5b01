//! Measures checks that one node forwards to another: many at a time, and one at a time.
//!
//! Two nodes in one process, each on a thread of its own, over a real socket on loopback.
//! `cargo run --release -p tollgate-peers --example forwarded_checks`
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]
#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{Limiter, Policy, SharedLimiter};
use tollgate_core::{Bucket, Rate, Rule};
use tollgate_net::{Drain, Sockets};
use tollgate_peers::{Address, PeerSettings, PeerStore, Served};
use tollgate_resp::{PeerCalls, PeerReply, Resp, RespSettings};
use tollgate_store::{Check, MemoryStore, Store as _};

/// Checks that wait at the same time.
const CONCURRENT: usize = 512;
const TIME: Duration = Duration::from_secs(3);

struct Calls(PeerStore);

impl PeerCalls for Calls {
    fn call(&self, version: &[u8], payload: &[u8]) -> PeerReply {
        match self.0.serve(version, payload) {
            Served::Now(reply) => PeerReply::Now(reply),
            Served::Later(reply) => PeerReply::Later(reply),
        }
    }
}

fn node(list: &str, here: &Address) -> PeerStore {
    let mut settings = PeerSettings::parse(&[&format!("tollgate://{list}")]).unwrap();
    (settings.advertise, settings.deadline) = (Some(here.clone()), Duration::from_secs(5));
    PeerStore::new(settings, MemoryStore::new(100_000), None)
}

/// Runs a listener for the calls of a node, on this thread.
fn serve(store: &PeerStore, sockets: Sockets) {
    let limiter = Limiter::with_store(Policy::parse("limits: []").unwrap(), MemoryStore::new(10));
    let peers = tollgate_resp::PeerSettings { password: None, calls: Arc::new(Calls(store.clone())) };
    let settings = RespSettings { peers: Some(peers), ..RespSettings::default() };
    let resp = Resp::new(SharedLimiter::from(limiter), settings);
    let listener = sockets.into_listeners().into_iter().next().unwrap();
    let (_drainer, drain) = Drain::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            _ = resp.serve(listener, None, drain) => {}
            () = store.tend() => {}
        }
    });
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

fn main() {
    let sockets: Vec<_> = (0..2).map(|_| Sockets::bind("127.0.0.1:0", 1).unwrap()).collect();
    let addresses: Vec<_> =
        sockets.iter().map(|it| Address::of(it.address().ip(), it.address().port())).collect();
    let list = addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
    let stores: Vec<_> = addresses.iter().map(|here| node(&list, here)).collect();
    for (store, sockets) in stores.iter().cloned().zip(sockets) {
        thread::spawn(move || serve(&store, sockets));
    }
    while !stores.iter().all(PeerStore::is_settled) {
        thread::sleep(Duration::from_millis(5));
    }
    let rule = Rule::new("api", Bucket::new(Rate::per_second(1_000_000_000)).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let keys: Vec<Vec<u8>> = (0..)
        .map(|it: u32| format!("user:{it}").into_bytes())
        .filter(|key| stores[0].owner(key).as_ref() == Some(&addresses[1]))
        .take(1_000)
        .collect();
    let (store, keys) = (stores[0].clone(), Arc::new(keys));
    runtime.block_on(async {
        let mut times = Vec::new();
        for number in 0..20_000 {
            let at = Instant::now();
            store.decide(&[Check::new(&rule, &keys[number % keys.len()], 1)]).await.unwrap();
            times.push(at.elapsed());
        }
        times.sort_unstable();
        println!("one at a time: p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);

        let (start, cpu) = (Instant::now(), cpu_time());
        let tasks: Vec<_> = (0..CONCURRENT)
            .map(|task| {
                let (store, rule, keys) = (store.clone(), rule.clone(), Arc::clone(&keys));
                tokio::spawn(async move {
                    let mut count = 0_u64;
                    while start.elapsed() < TIME {
                        for _ in 0..16 {
                            count += 1;
                            let key = &keys[(task * 31 + usize::try_from(count).unwrap()) % keys.len()];
                            store.decide(&[Check::new(&rule, key, 1)]).await.unwrap();
                        }
                    }
                    count
                })
            })
            .collect();
        let mut total = 0;
        for task in tasks {
            total += task.await.unwrap();
        }
        let (wall, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
        let per_second = total as f64 / wall.as_secs_f64();
        println!(
            "{CONCURRENT} at a time: {per_second:.0} checks/s, {:.0} ns of CPU a check on the calling node",
            cpu.as_nanos() as f64 / total as f64
        );
    });
}
