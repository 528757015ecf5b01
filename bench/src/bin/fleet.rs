//! Benchmarks unit leases on a real Redis and a real Redis Cluster: one run, one table, one JSON file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use tollgate_bench::cores::Cores;
use tollgate_bench::fleet::daemon::Stage;
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
  --only NAME,... some of hot, lease 250ms, lease 1s, saturated, redis stopped, processes, cluster, services, regions,
                  peers
  --rounds N      how often hot keys and processes are measured (10)
  --seconds N     how long nodes send requests, each time (10)
  --tollgate PATH the program to measure (target/release/tollgate)";

/// Nodes on one key.
const NODES: usize = 2;

/// Requests of a node in a millisecond.
const PER_MILLISECOND: u32 = 40;

/// Eight processes with 150 concurrent requests each. The lease is that of `auto`, at most a second.
const CONTENTION: Contention = Contention { processes: 8, requests: 150, lease: Some(Span::from_secs(1)) };

/// The time after which a saturated bucket has to admit its whole rate.
const MINUTE: Duration = Duration::from_secs(60);

/// How long a saturated bucket is measured after that. The nodes hold up to 25 ms of its rate at both ends of this time.
const SATURATED: Duration = Duration::from_secs(40);

/// The time in which an idle key becomes hot, and its leases reach their size.
const WARM_UP: Duration = Duration::from_secs(1);

/// Seconds and rounds of processes under load.
const SERVICE_SECONDS: u64 = 4;
const SERVICE_ROUNDS: usize = 3;

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
    only: Vec<String>,
    rounds: usize,
    length: Duration,
    program: PathBuf,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let target = report::target().map_err(|error| error.to_string())?;
        let program = target.join("release/tollgate");
        let mut options = Self { only: Vec::new(), rounds: 10, length: Duration::from_secs(10), program };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--only" => options.only = command_line::names(value),
                "--rounds" => options.rounds = command_line::number(value, 1..=1_000)?,
                "--seconds" => options.length = Duration::from_secs(command_line::number(value, 4..=3_600)?),
                "--tollgate" => options.program = value.into(),
                _ => return None,
            }
            Some(())
        })?;
        if let Some(name) = options.only.iter().find(|it| !is_part(it)) {
            return Err(format!("`{name}` is not measured\n{USAGE}"));
        }
        Ok(options)
    }

    /// Measures a part of the benchmark, unless it was left out.
    fn measure<T>(&self, part: &str, measure: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        if !self.only.is_empty() && !self.only.iter().any(|it| it == part) {
            return Ok(None);
        }
        eprintln!("{part}");
        measure().map(Some)
    }
}

/// The parts of the benchmark, beside those of [`Case::ALL`].
const PARTS: [&str; 6] = ["hot", "processes", "cluster", "services", "regions", "peers"];

fn is_part(name: &str) -> bool {
    PARTS.contains(&name) || Case::ALL.iter().any(|it| it.name == name)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn run(options: &Options) -> io::Result<()> {
    // Checked first: it is needed after the other measurements.
    process::succeeds(&options.program.to_string_lossy(), &["--version"])?;
    // Read before this process leaves a core.
    let machine = Machine::here();
    let cores = Cores::shared_out()?;
    cores.move_aside()?;
    let folder = report::target()?.join("bench/fleet");
    fs::create_dir_all(&folder)?;
    let runtime = runtime()?;
    let redis = runtime.block_on(Instance::start(cores.contestant, &folder))?;
    let hot = options.measure("hot", || hot::measure(&redis.url(), options.rounds))?;
    let mut rows = Vec::new();
    for case in Case::ALL {
        rows.extend(options.measure(case.name, || case.measure(&redis, &runtime, options.length))?);
    }
    let contention = options.measure("processes", || {
        (0..options.rounds).map(|round| exactness::measure(&redis, CONTENTION, round)).collect()
    })?;
    let cluster =
        options.measure("cluster", || cluster::measure(&cluster_on(cores.contestant)?, options.length))?;
    let (program, core) = (options.program.clone(), cores.contestant);
    let stage = Stage { program, core, folder, seconds: SERVICE_SECONDS };
    let surfaces = options.measure("services", || stage.surfaces(options.rounds.min(SERVICE_ROUNDS)))?;
    let regions = options.measure("regions", || stage.regions())?;
    let peers = options.measure("peers", || stage.peers())?;
    let (surfaces, contention) = (surfaces.unwrap_or_default(), contention.unwrap_or_default());
    let measured = Measured { hot, rows, surfaces, regions, peers, cluster, contention };
    let mut remarks = vec![format!(
        "Redis, the cluster, and the process under load: on core {}; all else on the others",
        cores.contestant
    )];
    let mut name = "fleet".to_owned();
    if !options.only.is_empty() {
        remarks.push("only some parts were run".into());
        // Beside the file of a whole run.
        name = format!("fleet-{}", options.only.join("-").replace(' ', "-"));
    }
    let report = FleetReport::new(machine, redis.version().to_owned(), measured, remarks);
    println!("{report}");
    println!("written to {}", report::write(&name, &report)?.display());
    Ok(())
}

/// Starts a cluster on one core.
fn cluster_on(core: usize) -> io::Result<RedisCluster> {
    let cluster = RedisCluster::start();
    for node in (0..6).map(|index| cluster.node(index).id()) {
        process::succeeds("taskset", &["-a", "-p", "-c", &core.to_string(), &node.to_string()])?;
    }
    Ok(cluster)
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
        let (settled, length) =
            if self.limit.is_some() { (MINUTE, MINUTE + SATURATED) } else { (WARM_UP, length) };
        let load = Load { per_millisecond: PER_MILLISECOND, length, settled, deadline };
        let before = runtime.block_on(redis.account())?;
        let half = Duration::from(self.lease) / 2;
        let meanwhile = || if self.is_stopped { stop(redis, length / 2, half) } else { Ok(()) };
        let (tally, took) = node::run(&redis.url(), NODES, &self.rule()?, load, meanwhile)?;
        let calls = runtime.block_on(redis.account())?.since(&before).scripts;
        #[allow(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
        let units = |time: f64| self.limit.map(|limit| limit as f64 * time);
        let ideal = units(1.0 + took.as_secs_f64());
        let settled_ideal = units(length.saturating_sub(settled).as_secs_f64());
        Ok(Row { case: self.name, nodes: NODES, tally, calls, ideal, settled_ideal })
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
