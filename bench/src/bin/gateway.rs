//! Benchmarks Tollgate's gateway against nginx and Envoy: one run, one table, one JSON file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::cores::Cores;
use tollgate_bench::gateway::contestant::{Envoy, Nginx, Tollgate, Watch};
use tollgate_bench::gateway::perf::{HOW_TO_COUNT, Perf};
use tollgate_bench::gateway::report::Setting;
use tollgate_bench::gateway::trial::Track;
use tollgate_bench::gateway::{Contestant, Duty, GatewayReport, idle, upstream, wrk};
use tollgate_bench::report::{self, Machine};
use tollgate_bench::sample::Row;

const USAGE: &str = "usage: gateway [OPTION VALUE]...
  --tollgate PATH    the program, instead of the one beside this one
  --envoy PATH       the program, instead of the one that setup/envoy installs
  --only NAME,...    some of tollgate, nginx, envoy, tollgate-all-on, tollgate-unwatched
  --rounds N         how often each is measured (3)
  --seconds N        how long, each time, 1 to 30 (5)
  --pause N          the milliseconds that each connection waits before its next request, up to 1000 (0)";

/// The longest measurement in seconds. Beyond it nginx admits requests that it should refuse: its slowest rate is one
/// a minute.
const MAX_SECONDS: u64 = 30;

fn main() -> ExitCode {
    command_line::run("gateway", USAGE, |arguments| {
        Options::read(arguments).and_then(|options| run(&options).map_err(|error| error.to_string()))
    })
}

/// Command line options.
struct Options {
    tollgate: PathBuf,
    envoy: PathBuf,
    only: Vec<String>,
    rounds: usize,
    seconds: u64,
    pause: u64,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let beside = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("tollgate");
        let envoy = report::target().map_err(|error| error.to_string())?.join("envoy/envoy");
        let mut options = Self { tollgate: beside, envoy, only: Vec::new(), rounds: 3, seconds: 5, pause: 0 };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--tollgate" => options.tollgate = value.into(),
                "--envoy" => options.envoy = value.into(),
                "--only" => options.only = command_line::names(value),
                "--rounds" => options.rounds = command_line::number(value, 1..=usize::MAX)?,
                "--seconds" => options.seconds = command_line::number(value, 1..=MAX_SECONDS)?,
                "--pause" => options.pause = command_line::number(value, 0..=1_000)?,
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }

    fn contestants(&self) -> io::Result<Vec<Box<dyn Contestant>>> {
        let tollgate = |watch| Box::new(Tollgate { program: self.tollgate.clone(), watch });
        let envoy = Box::new(Envoy { program: self.envoy.clone() });
        let mut all: Vec<Box<dyn Contestant>> = vec![
            tollgate(Watch::Default),
            Box::new(Nginx),
            envoy,
            tollgate(Watch::All),
            tollgate(Watch::Off),
        ];
        if let Some(name) = self.only.iter().find(|name| !all.iter().any(|it| it.name() == **name)) {
            return Err(io::Error::other(format!("nobody is called `{name}`\n{USAGE}")));
        }
        all.retain(|it| self.only.is_empty() || self.only.iter().any(|name| name == it.name()));
        Ok(all)
    }
}

fn run(options: &Options) -> io::Result<()> {
    let contestants = options.contestants()?;
    let mut versions = BTreeMap::from([("wrk", wrk::version()?)]);
    for contestant in &contestants {
        // One program, regardless of its configuration.
        let program = contestant.name().split('-').next().unwrap_or_default();
        versions.insert(program, contestant.version()?);
    }
    let seconds = options.seconds;
    // Read before this process leaves a core.
    let setting = Setting {
        machine: Machine::here(),
        versions,
        connections: wrk::CONNECTIONS,
        seconds,
        pause_ms: options.pause,
    };
    let cores = Cores::shared_out()?;
    cores.move_aside()?;
    idle::make_room()?;
    let folder = report::target()?.join("bench/gateway");
    fs::create_dir_all(&folder)?;
    let upstream = upstream::start(&folder)?;
    let mut remarks = remarks(&cores, &contestants);
    let perf = Perf::found(&folder);
    if perf.is_none() {
        remarks.push(HOW_TO_COUNT.into());
    }
    let script = (options.pause > 0).then(|| wrk::write_pause(&folder, options.pause)).transpose()?;
    let track = Track { cores, upstream: upstream.address(), folder, seconds, script, perf };
    let rows = measure(&track, &contestants, options.rounds)?;
    let mut weights = Vec::new();
    for contestant in contestants.iter().filter(|it| it.duties().contains(&Duty::Refuse)) {
        eprintln!("weighing {} with {} idle connections", contestant.name(), idle::CONNECTIONS);
        weights.push(idle::weigh(&track, contestant.as_ref())?);
    }
    let report = GatewayReport::new(setting, rows, weights, remarks);
    println!("{report}");
    println!("\nwritten to {}", report::write("gateway", &report)?.display());
    println!("configurations are in {}", track.folder.display());
    Ok(())
}

/// Measures the contestants in turns, so that noise affects all of them.
fn measure(track: &Track, contestants: &[Box<dyn Contestant>], rounds: usize) -> io::Result<Vec<Row>> {
    let on_duty = |duty| contestants.iter().map(Box::as_ref).filter(move |it| it.duties().contains(duty));
    let entries: Vec<_> =
        Duty::ALL.iter().flat_map(|duty| on_duty(duty).map(move |it| (*duty, it))).collect();
    // Contestants that a bar compares run close in time: the first case runs in reverse order, so that Tollgate
    // without limits is followed by Tollgate with limits, and then by its peers.
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order[..on_duty(&Duty::Off).count()].reverse();
    let mut samples = vec![Vec::new(); entries.len()];
    for round in 1..=rounds {
        for &at in &order {
            let (duty, contestant) = entries[at];
            let sample = track.measure(contestant, duty)?;
            let (case, name) = (duty.name(), contestant.name());
            eprintln!("round {round} of {rounds}: {case}, {name}: {:.0} requests/s", sample.per_second);
            samples[at].push(sample);
        }
    }
    let rows = entries.iter().zip(samples);
    Ok(rows.map(|((duty, contestant), rounds)| Row::new((duty.name(), contestant.name()), rounds)).collect())
}

fn remarks(cores: &Cores, contestants: &[Box<dyn Contestant>]) -> Vec<String> {
    let load: Vec<String> = cores.load.iter().map(usize::to_string).collect();
    let mut remarks = vec![format!(
        "the contestant alone on core {}; upstream and wrk share core {}",
        cores.contestant,
        load.join(", ")
    )];
    if cores.are_siblings() {
        remarks.push("these are threads of one core: the load slows the contestant down".into());
    }
    if contestants.len() < 5 {
        remarks.push("only some contestants were run".into());
    }
    remarks
}
