//! Benchmarks Tollgate's Redis store against one plain call per decision: one run, one table, one JSON file.

use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::cores::Cores;
use tollgate_bench::redis::exactness::Contention;
use tollgate_bench::redis::report::{Measured, Pair, Row, Setting};
use tollgate_bench::redis::{Case, IN_FLIGHT, Instance, RedisReport, exactness, latency};
use tollgate_bench::report::{self, Machine};

/// The allocator of the `tollgate` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: redis [OPTION VALUE]...
  --rounds N      how often each is measured (5)
  --seconds N     how long, each time, 0.1 to 10 (1.5)";

/// The longest measurement in seconds. Beyond it, keys that should always be admitted could exhaust their allowance.
const MAX_SECONDS: f64 = 10.0;

/// The shortest measurement in seconds.
const MIN_SECONDS: f64 = 0.1;

fn main() -> ExitCode {
    command_line::run("redis", USAGE, |arguments| {
        let message = |error: io::Error| error.to_string();
        match arguments {
            [word, rest @ ..] if word == exactness::WORD => spend(rest).map_err(message),
            _ => Options::read(arguments).and_then(|options| run(&options).map_err(message)),
        }
    })
}

/// Command line options.
struct Options {
    rounds: usize,
    seconds: f64,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { rounds: 5, seconds: 1.5 };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--rounds" => options.rounds = command_line::number(value, 1..=usize::MAX)?,
                "--seconds" => options.seconds = command_line::number(value, MIN_SECONDS..=MAX_SECONDS)?,
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }
}

/// Runs one of the processes that share an allowance.
fn spend(arguments: &[String]) -> io::Result<()> {
    runtime()?.block_on(exactness::spend(arguments))
}

/// Creates a single-threaded runtime, like each thread of a server.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn run(options: &Options) -> io::Result<()> {
    // Read before this process leaves a core.
    let machine = Machine::here();
    let mut cores = Cores::shared_out()?;
    cores.load.truncate(1);
    cores.move_aside()?;
    let folder = report::target()?.join("bench/redis");
    fs::create_dir_all(&folder)?;
    runtime()?.block_on(async {
        let redis = Instance::start(cores.contestant, &folder).await?;
        let measured = measure(&redis, options).await?;
        let setting = Setting {
            machine,
            redis: redis.version().to_owned(),
            in_flight: IN_FLIGHT,
            seconds: options.seconds,
        };
        let report = RedisReport::new(setting, measured, remarks(&cores));
        println!("{report}");
        println!("\nwritten to {}", report::write("redis", &report)?.display());
        Ok(())
    })
}

/// Measures the cases in turns, so that noise affects all of them, with the baseline right before each case.
async fn measure(redis: &Instance, options: &Options) -> io::Result<Measured> {
    let Options { rounds, seconds } = *options;
    let time = Duration::from_secs_f64(seconds);
    let mut pairs = vec![Vec::new(); Case::COMPARED.len()];
    let (mut latencies, mut spent) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for (case, pairs) in Case::COMPARED.iter().zip(&mut pairs) {
            let baseline = Case::Baseline.measure(redis, time).await?;
            let sample = case.measure(redis, time).await?;
            let name = case.name();
            eprintln!(
                "round {round} of {rounds}: {name}: {:.0} decisions/s, baseline {:.0}",
                sample.per_second, baseline.per_second
            );
            pairs.push(Pair { baseline, sample });
        }
        let latency = latency::measure(redis, time).await?;
        eprintln!("round {round} of {rounds}: one at a time: {:.1} us", latency.one_limit.p50_us);
        latencies.push(latency);
        spent.push(exactness::measure(redis, Contention::EXACT, round)?);
    }
    let rows = Case::COMPARED.iter().zip(pairs).map(|(case, pairs)| Row::new(*case, pairs)).collect();
    let round_trips = latency::round_trips(redis).await?;
    Ok(Measured { rows, latency: latencies, round_trips, exactness: spent })
}

fn remarks(cores: &Cores) -> Vec<String> {
    let ours: Vec<String> = cores.load.iter().map(usize::to_string).collect();
    let mut remarks =
        vec![format!("Redis alone on core {}, the client on core {}", cores.contestant, ours.join(", "))];
    if cores.are_siblings() {
        remarks.push("these are threads of one core: each slows the other down".into());
    }
    remarks
}
