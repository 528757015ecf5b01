//! Benchmarks unit leases on a real Redis and a real Redis Cluster: one run, one table, one JSON file.

use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use tollgate_bench::cores::Cores;
use tollgate_bench::fleet::node::{self, Load};
use tollgate_bench::fleet::report::Row;
use tollgate_bench::fleet::{FleetReport, Measured, bucket, cluster, hot};
use tollgate_bench::redis::Instance;
use tollgate_bench::redis::exactness::{self, Contention};
use tollgate_bench::redis::instance::CALL_TIMEOUT;
use tollgate_bench::report::{self, Machine};
use tollgate_bench::{command_line, process, stopwatch};
use tollgate_core::{Rate, Rule, Span};
use tollgate_testkit::RedisCluster;

/// The allocator of the `tollgate` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: fleet [OPTION VALUE]...
  --rounds N      how often hot keys and processes are measured (10)
  --seconds N     how long nodes send requests, each time (10)";

/// Nodes on one key.
const NODES: usize = 2;

/// Requests of a node in a millisecond.
const PER_MILLISECOND: u32 = 40;

/// Eight processes with 150 concurrent requests each. The lease is that of `auto`, at most a second.
const CONTENTION: Contention = Contention { processes: 8, requests: 150, lease: Some(Span::from_secs(1)) };

/// The deadline of calls when Redis is stopped.
const DEADLINE: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    command_line::run("fleet", USAGE, |arguments| {
        let message = |error: io::Error| error.to_string();
        match arguments {
            [word, rest @ ..] if word == exactness::WORD => {
                runtime().and_then(|it| it.block_on(exactness::spend(rest))).map_err(message)
            }
            _ => Options::read(arguments).and_then(|options| run(&options).map_err(message)),
        }
    })
}

/// Command line options.
struct Options {
    rounds: usize,
    length: Duration,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { rounds: 10, length: Duration::from_secs(10) };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--rounds" => options.rounds = command_line::number(value, 1..=1_000)?,
                "--seconds" => options.length = Duration::from_secs(command_line::number(value, 4..=3_600)?),
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn run(options: &Options) -> io::Result<()> {
    // Read before this process leaves a core.
    let machine = Machine::here();
    let cores = Cores::shared_out()?;
    cores.move_aside()?;
    let folder = report::target()?.join("bench/fleet");
    fs::create_dir_all(&folder)?;
    let runtime = runtime()?;
    let redis = runtime.block_on(Instance::start(cores.contestant, &folder))?;
    eprintln!("hot key");
    let hot = hot::measure(&redis.url(), options.rounds)?;
    let mut rows = Vec::new();
    for case in Case::ALL {
        eprintln!("{}", case.name);
        rows.push(case.measure(&redis, &runtime, options.length)?);
    }
    eprintln!("processes");
    let contention = (0..options.rounds).map(|round| exactness::measure(&redis, CONTENTION, round));
    let contention = contention.collect::<io::Result<_>>()?;
    eprintln!("cluster");
    let cluster = Some(cluster::measure(&RedisCluster::start(), options.length)?);
    let measured = Measured { hot, rows, cluster, contention };
    let remarks = vec![format!(
        "Redis alone on core {}, all nodes on the others; the cluster shares the cores of the client",
        cores.contestant
    )];
    let report = FleetReport::new(machine, redis.version().to_owned(), measured, remarks);
    println!("{report}");
    println!("written to {}", report::write("fleet", &report)?.display());
    Ok(())
}

/// Nodes on one key, under one limit.
struct Case {
    name: &'static str,
    lease: Span,
    /// The rate in a second, which is also the burst; `None` for an ample limit.
    limit: Option<u64>,
    /// Whether Redis stops for half a lease.
    is_stopped: bool,
}

impl Case {
    const ALL: [Self; 4] = [
        Self { name: "lease 250ms", lease: Span::from_millis(250), limit: None, is_stopped: false },
        Self { name: "lease 1s", lease: Span::from_secs(1), limit: None, is_stopped: false },
        // `auto` of a bucket that fills in a second.
        Self { name: "saturated", lease: Span::from_millis(25), limit: Some(20_000), is_stopped: false },
        Self { name: "redis stopped", lease: Span::from_secs(1), limit: None, is_stopped: true },
    ];

    fn rule(&self) -> io::Result<Rule> {
        let (rate, burst) = self.limit.map_or((1_000_000, 1_000_000_000), |limit| (limit, limit));
        bucket(self.name, Rate::per_second(rate), burst, Some(self.lease))
    }

    fn measure(
        &self,
        redis: &Instance,
        runtime: &tokio::runtime::Runtime,
        length: Duration,
    ) -> io::Result<Row> {
        let deadline = if self.is_stopped { DEADLINE } else { CALL_TIMEOUT };
        let load = Load { per_millisecond: PER_MILLISECOND, length, deadline };
        let before = runtime.block_on(redis.account())?;
        let half = Duration::from(self.lease) / 2;
        let meanwhile = || if self.is_stopped { stop(redis, length / 2, half) } else { Ok(()) };
        let (tally, took) = node::run(&redis.url(), NODES, &self.rule()?, load, meanwhile)?;
        let calls = runtime.block_on(redis.account())?.since(&before).scripts;
        #[allow(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
        let ideal = self.limit.map(|limit| limit as f64 * (1.0 + took.as_secs_f64()));
        Ok(Row { case: self.name, nodes: NODES, tally, calls, ideal })
    }
}

/// Stops Redis for a while.
fn stop(redis: &Instance, after: Duration, length: Duration) -> io::Result<()> {
    let signal = |name: &str| process::succeeds("kill", &[name, &redis.family()?.ids()]);
    stopwatch::pause(after);
    signal("-STOP")?;
    stopwatch::pause(length);
    signal("-CONT")
}
