//! A retry storm on real sockets: 50 clients, each with connections of its own, and a server that fails for a while.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tollgate::{Clock, Sleeper, Span, SystemClock, Timestamp};
use tollgate_client::retry::RetryBudgetSettings;
use tollgate_client::{CallOptions, Client, Settings};

/// The name on the command line.
pub(crate) const CASE: &str = "storm";

const CLIENTS: u64 = 50;
/// Calls per second of each client.
const RATE: u64 = 10;
/// The seconds at which the failure begins, at which it ends, and at which the last call is made.
const FAILURE: (f64, f64, u64) = (4.0, 14.0, 18);
/// The time of a step in which successes are counted.
const STEP: f64 = 0.1;

/// The result of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Storm {
    subject: &'static str,
    /// Attempts per second before the failure.
    normal: f64,
    /// Attempts per second during the failure, as a multiple.
    load: f64,
    /// The seconds from the end of the failure until nine tenths of the usual calls succeed.
    recovery: f64,
}

/// Requests with their time in seconds, and whether they were answered well.
type Log = Arc<Mutex<Vec<(f64, bool)>>>;

/// Runs the storm with the defaults, and without budget and breaker.
pub(crate) fn measure() -> Result<Vec<Storm>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let without = |settings: &mut Settings| {
        settings.breaker.failures = 0;
        settings.retry_budget = RetryBudgetSettings { share: 1e9, reserve: 1e9, max: 1e9 };
        settings.tries = 4;
    };
    Ok(vec![
        runtime.block_on(run("retry budget and breaker", |_| {}))?,
        runtime.block_on(run("retry budget alone", |settings| settings.breaker.failures = 0))?,
        runtime.block_on(run("four tries, neither", without))?,
    ])
}

async fn run(subject: &'static str, change: fn(&mut Settings)) -> Result<Storm, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/items", listener.local_addr()?);
    let (clock, log) = (SystemClock::new(), Log::default());
    let start = clock.now();
    let server = tokio::spawn(accept(listener, (clock.clone(), start), Arc::clone(&log)));
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = Client::builder().settings(change).sleeper(Sleeper::new(sleep)).build();
        clients.push(tokio::spawn(call(client, url.clone(), (clock.clone(), start), number)));
    }
    for client in clients {
        client.await?;
    }
    server.abort();
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Storm::new(subject, &log))
}

/// Makes the calls of one client at their times, whatever happened to those before.
async fn call(client: Client, url: String, (clock, start): (SystemClock, Timestamp), number: u64) {
    let http = reqwest::Client::new();
    let mut calls = tokio::task::JoinSet::new();
    for call in 0..FAILURE.2 * RATE {
        let due = start + Span::from_micros((call * CLIENTS + number) * 1_000_000 / (RATE * CLIENTS));
        sleep(due.since(clock.now()).into()).await;
        let (client, http, request) = (client.clone(), http.clone(), http.get(&url).build());
        calls.spawn(async move {
            if let Ok(request) = request {
                drop(client.execute(&http, request, CallOptions::default()).await);
            }
        });
    }
    while calls.join_next().await.is_some() {}
}

async fn accept(listener: TcpListener, time: (SystemClock, Timestamp), log: Log) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, time.clone(), Arc::clone(&log)));
    }
}

/// Answers the requests of a connection.
async fn serve(mut stream: TcpStream, (clock, start): (SystemClock, Timestamp), log: Log) {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.is_empty() {
            continue;
        }
        let at = Duration::from(clock.now().since(start)).as_secs_f64();
        let is_well = !(FAILURE.0..FAILURE.1).contains(&at);
        log.lock().unwrap_or_else(PoisonError::into_inner).push((at, is_well));
        let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if writer.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Storm {
    #[allow(clippy::cast_precision_loss)] // counts of requests
    fn new(subject: &'static str, log: &[(f64, bool)]) -> Self {
        let count = |from: f64, to: f64, only_well: bool| {
            log.iter().filter(|(at, well)| (from..to).contains(at) && (*well || !only_well)).count() as f64
        };
        let normal = count(1.0, FAILURE.0, false) / (FAILURE.0 - 1.0);
        let load = count(FAILURE.0, FAILURE.1, false) / (FAILURE.1 - FAILURE.0) / normal;
        let steps = (0..60).map(|step| FAILURE.1 + f64::from(step) * STEP);
        let usual = (CLIENTS * RATE) as f64 * STEP;
        let recovered = steps.into_iter().find(|from| count(*from, from + STEP, true) >= 0.9 * usual);
        let recovery = recovered.map_or(f64::INFINITY, |from| from + STEP - FAILURE.1);
        Self { subject, normal, load, recovery }
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bars = if self.load <= 1.2 && self.recovery <= 2.0 { "met" } else { "missed" };
        write!(
            f,
            "storm    {:28} normal {:5.0}/s  load during the failure {:.2} x  recovery {:.1} s  {bars}",
            self.subject, self.normal, self.load, self.recovery
        )
    }
}
