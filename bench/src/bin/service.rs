//! Benchmarks Tollgate's surfaces against throttlecrab-server and Redis: one run, one table, one JSON file.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::cores::Cores;
use tollgate_bench::gateway::idle::make_room_for;
use tollgate_bench::gateway::wrk;
use tollgate_bench::report::{self, Machine};
use tollgate_bench::sample::Row;
use tollgate_bench::service::idle::{self, CONNECTIONS};
use tollgate_bench::service::question::{grpc, resp};
use tollgate_bench::service::report::Setting;
use tollgate_bench::service::trial::Track;
use tollgate_bench::service::{Contestant, Programs, ServiceReport};

const USAGE: &str = "usage: service [OPTION VALUE]...
  --tollgate PATH      the program, instead of the one beside this one
  --throttlecrab PATH  the program, instead of the one that setup/throttlecrab builds
  --only WORD,...      cases (resp_p1, resp_p16, http, grpc, grpc_varied, idle) or subjects (tollgate, throttlecrab, redis-incr, ...)
  --rounds N           how often each is measured (3)
  --seconds N          about how long, each time, 1 to 20 (4)";

/// The case of the memory of connections.
const IDLE: &str = "idle";

/// The longest measurement in seconds. Beyond it, the load could exhaust an ample limit.
const MAX_SECONDS: u64 = 20;

fn main() -> ExitCode {
    command_line::run("service", USAGE, |arguments| {
        Options::read(arguments).and_then(|options| run(options).map_err(|error| error.to_string()))
    })
}

/// Command line options.
struct Options {
    programs: Programs,
    only: Vec<String>,
    rounds: usize,
    seconds: u64,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let tollgate = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("tollgate");
        let target = report::target().map_err(|error| error.to_string())?;
        let throttlecrab = target.join("throttlecrab/bin/throttlecrab-server");
        let programs = Programs { tollgate, throttlecrab };
        let mut options = Self { programs, only: Vec::new(), rounds: 3, seconds: 4 };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--tollgate" => options.programs.tollgate = value.into(),
                "--throttlecrab" => options.programs.throttlecrab = value.into(),
                "--only" => options.only = command_line::names(value),
                "--rounds" => options.rounds = command_line::number(value, 1..=usize::MAX)?,
                "--seconds" => options.seconds = command_line::number(value, 1..=MAX_SECONDS)?,
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }

    /// Returns the contestants to run. Named cases and named subjects both restrict them.
    fn contestants(&self) -> io::Result<Vec<Contestant>> {
        let mut all = Contestant::all();
        let named = |of: fn(&Contestant) -> &'static str, all: &[Contestant]| -> Vec<String> {
            self.only.iter().filter(|word| all.iter().any(|it| of(it) == **word)).cloned().collect()
        };
        let (cases, subjects) = (named(|it| it.case, &all), named(|it| it.subject, &all));
        let is_unknown = |word: &&String| !cases.contains(word) && !subjects.contains(word) && *word != IDLE;
        if let Some(word) = self.only.iter().find(is_unknown) {
            return Err(io::Error::other(format!("nothing is called `{word}`\n{USAGE}")));
        }
        // Without another case, `idle` is the only one.
        let is_idle = cases.is_empty() && self.only.iter().any(|word| word == IDLE);
        all.retain(|_| !is_idle);
        all.retain(|it| cases.is_empty() || cases.iter().any(|case| case == it.case));
        all.retain(|it| subjects.is_empty() || subjects.iter().any(|subject| subject == it.subject));
        Ok(all)
    }

    /// Returns the contestants whose memory is measured. Named subjects restrict them.
    fn weighed(&self) -> Vec<Contestant> {
        let mut all = idle::contestants();
        if !self.only.is_empty() {
            let is_named = |word: &str| self.only.iter().any(|it| it == word);
            let has_subjects = all.iter().any(|it| is_named(it.subject));
            all.retain(|it| is_named(IDLE) && (!has_subjects || is_named(it.subject)));
        }
        all
    }
}

fn run(options: Options) -> io::Result<()> {
    let contestants = options.contestants()?;
    let generators =
        [("wrk", wrk::version()?), ("redis-benchmark", resp::version()?), ("h2load", grpc::version()?)];
    let versions: BTreeMap<_, _> = options.programs.versions()?.into_iter().chain(generators).collect();
    let weighed = options.weighed();
    let Options { programs, rounds, seconds, only } = options;
    // Read before this process leaves a core.
    let setting = Setting { machine: Machine::here(), versions, seconds };
    if !weighed.is_empty() {
        make_room_for(5 * CONNECTIONS as usize)?;
    }
    let cores = Cores::shared_out()?;
    cores.move_aside()?;
    let folder = report::target()?.join("bench/service");
    fs::create_dir_all(&folder)?;
    let remarks = remarks(&cores, !only.is_empty());
    let track = Track { cores, programs, folder, seconds };
    let rows = measure(&track, &contestants, rounds)?;
    let weights = weighed.iter().map(|it| idle::weigh(&track, it)).collect::<io::Result<_>>()?;
    let report = ServiceReport::new(setting, rows, weights, remarks);
    println!("{report}");
    println!("\nwritten to {}", report::write("service", &report)?.display());
    println!("configurations are in {}", track.folder.display());
    Ok(())
}

/// Measures the contestants in turns, so that noise affects all of them.
fn measure(track: &Track, contestants: &[Contestant], rounds: usize) -> io::Result<Vec<Row>> {
    let mut samples = vec![Vec::new(); contestants.len()];
    for round in 1..=rounds {
        for (contestant, samples) in contestants.iter().zip(&mut samples) {
            let sample = track.measure(contestant)?;
            let Contestant { case, subject, .. } = contestant;
            eprintln!(
                "round {round} of {rounds}: {case}, {subject}: {:.0} requests/s, {:.2} us each",
                sample.per_second, sample.cpu_us
            );
            samples.push(sample);
        }
    }
    let rows = contestants.iter().zip(samples);
    Ok(rows.map(|(it, rounds)| Row::new((it.case, it.subject), rounds)).collect())
}

fn remarks(cores: &Cores, some_only: bool) -> Vec<String> {
    let load: Vec<String> = cores.load.iter().map(usize::to_string).collect();
    let mut remarks =
        vec![format!("the server alone on core {}; the load on core {}", cores.contestant, load.join(", "))];
    if cores.are_siblings() {
        remarks.push("these are threads of one core: the load slows the server down".into());
    }
    if some_only {
        remarks.push("only some were run".into());
    }
    remarks
}
