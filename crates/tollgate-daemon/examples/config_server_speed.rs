//! Measures a configuration server with many domains: the first load, updates of one domain, and memory.
//!
//! ```sh
//! cargo run --release -p tollgate-daemon --example config_server_speed -- [DOMAINS [RULES [UPDATES [STORE]]]]
//! ```
//!
//! `STORE` is the URL of a shared store; without it, the store is in memory.
//!
//! A time is from the first byte that the server sends until its client has acknowledged, which it does when
//! the configuration is in force.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a measurement")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

#[allow(dead_code, reason = "the tests of tollgate-xds use more of it")]
#[path = "../../tollgate-xds/tests/server.rs"]
mod server;

use std::time::Instant;

/// The allocator of the binary `tollgate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use server::{Rule, Server, config};
use tollgate_daemon::{Daemon, Inputs};

fn resident_mib() -> u64 {
    let pages: u64 =
        std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096 / (1 << 20)
}

fn domain(number: usize, rules: &[&'static str], requests: u64) -> Vec<u8> {
    let leaf = |key: &&'static str| Rule { value: key, ..Rule::per_minute(key, requests) };
    let route =
        Rule { key: "route", value: "route", below: rules.iter().map(leaf).collect(), ..Rule::default() };
    config(&format!("default/gateway-{number}/http"), &[route])
}

#[tokio::main]
async fn main() {
    let number =
        |at: usize, default: usize| std::env::args().nth(at).map_or(default, |it| it.parse().unwrap());
    let (domains, count, updates) = (number(1, 1_000), number(2, 256), number(3, 1_000));
    let rules: Vec<&'static str> = (0..count)
        .map(|at| -> &'static str { Box::leak(format!("rule-{at}-match-0").into_boxed_str()) })
        .collect();
    let mut server = Server::start().await;
    let inputs =
        Inputs::default().set("listen", "{gateway: off, api: 127.0.0.1:0, rls: 127.0.0.1:0, resp: off}").set(
            "rls.xds",
            &format!("{{server: \"{}\", node: n, max_message_bytes: 1_000_000_000}}", server.address),
        );
    let inputs = match std::env::args().nth(4) {
        Some(url) => inputs.set("store", &url),
        None => inputs,
    };
    let mut daemon = Daemon::start(inputs).await.unwrap();
    let (limiter, watching) = (daemon.policy(), tokio::spawn(async move { daemon.watch_files().await }));
    drop(limiter);
    let mut stream = server.stream().await;
    stream.request().await;
    let before = resident_mib();
    let mut all: Vec<_> = (0..domains).map(|at| domain(at, &rules, 5)).collect();
    let bytes: usize = all.iter().map(Vec::len).sum();
    println!("{domains} domains with {count} rules each, {:.1} MB", bytes as f64 / 1e6);
    let began = Instant::now();
    stream.send("0", "n0", &all);
    assert_eq!(stream.request().await.version, "0");
    println!("load: {} ms, {} MiB (before: {before} MiB)", began.elapsed().as_millis(), resident_mib());
    let mut times = Vec::new();
    for update in 1..=updates {
        let changed = update % domains;
        all[changed] = domain(changed, &rules, 5 + update as u64);
        let began = Instant::now();
        stream.send(&update.to_string(), &format!("n{update}"), &all);
        let answer = stream.request().await;
        assert_eq!((answer.version, answer.error), (update.to_string(), None));
        times.push(began.elapsed().as_micros() as f64 / 1e3);
        if update % (updates / 10).max(1) == 0 {
            println!("after {update} updates: {} MiB", resident_mib());
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        times.get(((times.len() as f64 * share) as usize).min(times.len() - 1)).copied().unwrap_or(0.0)
    };
    println!(
        "update of one domain: median {:.0} ms, 99 % {:.0} ms, longest {:.0} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    stream.send("bad", "nb", &[config("", &[])]);
    let answer = stream.request().await;
    println!(
        "a wrong configuration is rejected, and version {} stays: {}",
        answer.version,
        answer.error.unwrap()
    );
    watching.abort();
}
