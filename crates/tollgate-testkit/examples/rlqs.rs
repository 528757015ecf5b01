//! Measures how one limit is divided over three real Envoys: fairness, a killed Envoy, a killed Tollgate.
//!
//! `make bench-rlqs` runs it. It prints the results and writes `target/bench/rlqs.json`; the exit status is
//! that of the bars: the sum within the bound and at least 95 % of the limit, each Envoy within 10 % of its
//! fair share, the share of a killed Envoy used after two reports.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark that cannot go on has failed"
)]
#![allow(clippy::disallowed_methods, reason = "Envoy reports in real time")]
#![allow(clippy::cast_precision_loss, reason = "small numbers")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::{Value, json};
use tollgate_testkit::{PacedClient, Program, Scratch, Tollgate, free_port, wait_for_port};

const LIMIT: f64 = 300.0;
const OFFERED: [u32; 3] = [30, 150, 600];
const FAIR: [f64; 3] = [30.0, 135.0, 135.0];
const WARM_UP: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_secs(30);
const TWO_REPORTS: Duration = Duration::from_secs(10);

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn integration(file: &str) -> String {
    fs::read_to_string(root().join("integrations/envoy-rlqs").join(file)).unwrap()
}

/// A running Envoy, and the clients that it serves.
struct Proxy {
    program: Program,
    client: PacedClient,
    _files: Scratch,
}

fn start_envoy(rls: SocketAddr, offered: u32) -> Proxy {
    let files = Scratch::new();
    let (front, admin) = (free_port(), free_port());
    let text = integration("envoy.yaml")
        .replace("route: {cluster: app}", "direct_response: {status: 200, body: {inline_string: hello}}")
        .replace("port_value: 8000", &format!("port_value: {front}"))
        .replace("port_value: 9901", &format!("port_value: {admin}"))
        .replace("port_value: 8081", &format!("port_value: {}", rls.port()));
    let mut command = Command::new(root().join("target/envoy/envoy"));
    command.arg("--config-path").arg(files.write("envoy.yaml", &text));
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = Program::start(command);
    let address = SocketAddr::from(([127, 0, 0, 1], front));
    wait_for_port(&mut program, address);
    Proxy { program, client: PacedClient::start(address, offered, "x-tenant: acme"), _files: files }
}

fn start_tollgate(binary: &Path, rls: u16) -> Tollgate {
    let listen = format!("--listen-rls=127.0.0.1:{rls}");
    Tollgate::start_with(binary.to_str().unwrap(), &integration("policy.yaml"), &[&listen])
}

/// Returns the admitted requests per second of each client over a time.
fn measure(proxies: &[Proxy], time: Duration) -> Vec<f64> {
    let (start, before) = (Instant::now(), counts(proxies));
    thread::sleep(time);
    let (elapsed, after) = (start.elapsed().as_secs_f64(), counts(proxies));
    after.iter().zip(before).map(|(after, before)| (after - before) as f64 / elapsed).collect()
}

fn counts(proxies: &[Proxy]) -> Vec<u64> {
    proxies.iter().map(|it| it.client.admitted()).collect()
}

fn main() -> ExitCode {
    let binary = env::args().nth(1).map_or_else(|| root().join("target/release/tollgate"), PathBuf::from);
    let rls = free_port();
    let mut tollgate = start_tollgate(&binary, rls);
    let address = tollgate.rls.unwrap();
    let mut proxies: Vec<Proxy> = OFFERED.iter().map(|offered| start_envoy(address, *offered)).collect();
    thread::sleep(WARM_UP);
    let rates = measure(&proxies, MEASURED);
    let sum: f64 = rates.iter().sum();
    let bound = LIMIT + LIMIT / MEASURED.as_secs_f64();
    let is_fair = rates.iter().zip(FAIR).all(|(rate, fair)| (rate / fair - 1.0).abs() <= 0.1);
    println!("offered {OFFERED:?}: admitted {rates:.1?} a second, sum {sum:.1} of {LIMIT}, fair {FAIR:?}");

    tollgate.program.signal("KILL");
    tollgate.program.wait();
    tollgate = start_tollgate(&binary, rls);
    let restarted = measure(&proxies, MEASURED);
    let sum_restarted: f64 = restarted.iter().sum();
    println!("Tollgate killed and restarted: admitted {restarted:.1?} a second, sum {sum_restarted:.1}");

    thread::sleep(Duration::from_secs(5));
    let killed = proxies.remove(2);
    killed.program.signal("KILL");
    drop(killed);
    thread::sleep(TWO_REPORTS + Duration::from_secs(1));
    let after = measure(&proxies, Duration::from_secs(5));
    // The other two demand 180 together, and the limit is 300.
    println!("one Envoy killed, two reports later: admitted {after:.1?} a second of [30, 150]");

    let is_bounded = sum <= bound && sum >= 0.95 * LIMIT;
    let is_reused = after[1] >= 0.95 * 150.0;
    let is_restarted = sum_restarted <= bound && sum_restarted >= 0.95 * LIMIT;
    let result = json!({
        "limit": LIMIT, "offered": OFFERED, "fair": FAIR, "seconds": MEASURED.as_secs(),
        "admitted": rates, "sum": sum, "bound": bound,
        "after_restart": restarted, "sum_after_restart": sum_restarted,
        "after_kill": after,
        "bars": {"sum": is_bounded, "fair": is_fair, "killed_envoy": is_reused, "restart": is_restarted},
    });
    let folder = root().join("target/bench");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("rlqs.json"), format!("{result:#}\n")).unwrap();
    println!("{:#}", result["bars"]);
    drop((proxies, tollgate));
    let is_met = |bars: &Value| bars.as_object().is_some_and(|it| it.values().all(|met| *met == true));
    if is_met(&result["bars"]) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
