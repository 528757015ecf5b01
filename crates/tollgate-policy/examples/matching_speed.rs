//! Measures the time to compile ten thousand limits, and to match a request.
//!
//! `cargo run --release -p tollgate-policy --example matching_speed`
#![allow(clippy::disallowed_methods, reason = "measures real time; nothing is decided by it")]

use std::hint::black_box;
use std::time::Instant;

use tollgate_policy::{Call, Checks, Policy};

fn main() {
    let mut text = String::from("limits:\n");
    for i in 0..10_000 {
        let endpoint = format!("/api/v{}/service-{}/things-{i}/{{id}}", i % 3, i % 100);
        text.extend(["  - {by: api_key, bucket: 10/minute, endpoint: \"", &endpoint, "\"}\n"]);
    }
    text.push_str(
        "  - {by: ip, bucket: 1000/minute}\n  - {endpoint: /api/**, by: user, bucket: 100/minute}\n",
    );
    let start = Instant::now();
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(mistakes) => return eprintln!("{mistakes}"),
    };
    let (limits, nodes) = (policy.limits().len(), policy.matcher_size());
    println!("compile {limits} limits ({} KiB, {nodes} nodes): {:?}", text.len() / 1024, start.elapsed());

    let call = |path| Call::new("GET", path).ip([203, 0, 113, 9]).api_key("0123456789abcdef").user("ann");
    for (what, call) in [
        ("three limits", call("/api/v1/service-0/things-100/42")),
        ("one limit", call("/somewhere/else")),
        ("not in normal form", call("/api//v1/service-0/./things-100/42/")),
    ] {
        let mut checks = Checks::new();
        let rounds = 1_000_000_u32;
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(policy.match_request(black_box(&call), &mut checks));
        }
        let each = start.elapsed() / rounds;
        println!("match, {what} ({} checks, {} nodes): {each:?}", checks.len(), policy.matching_steps(&call));
    }
}
