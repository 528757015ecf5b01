//! Benchmarks a service at four times its capacity, behind Tollgate and behind Envoy: one run, one table, one JSON file.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::gateway::idle;
use tollgate_bench::overload::report::{Row, Setting};
use tollgate_bench::overload::trial::CASES;
use tollgate_bench::overload::upstream::ServiceTime;
use tollgate_bench::overload::{
    Contestant, OverloadReport, Plan, Programs, SERVICE_TIME, Track, WORKERS, capacity,
};
use tollgate_bench::report::{self, Machine};

const USAGE: &str = "usage: overload [OPTION VALUE]...
  --tollgate PATH   the program, instead of the one beside this one
  --envoy PATH      the program, instead of the one that setup/envoy installs
  --only NAME,...   some of nothing, envoy-adaptive-concurrency, envoy-admission-control, tollgate-adaptive,
                    tollgate-adaptive-classes
  --rounds N        how often each is measured (1)
  --seconds N       how long the overload lasts, 3 to 60 (10)
  --service NAME    how service times vary: fixed, uniform or exponential (uniform)";

/// File descriptors of a generator whose callers all wait for a second, and of the upstream that they wait for.
const DESCRIPTORS: usize = 16_000;

fn main() -> ExitCode {
    command_line::run("overload", USAGE, |arguments| {
        Options::read(arguments).and_then(|options| run(&options).map_err(|error| error.to_string()))
    })
}

/// Command line options.
struct Options {
    programs: Programs,
    only: Vec<String>,
    rounds: usize,
    seconds: u64,
    service_time: ServiceTime,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let tollgate = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("tollgate");
        let envoy = report::target().map_err(|error| error.to_string())?.join("envoy/envoy");
        let programs = Programs { tollgate, envoy };
        let mut options =
            Self { programs, only: Vec::new(), rounds: 1, seconds: 10, service_time: ServiceTime::Uniform };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--tollgate" => options.programs.tollgate = value.into(),
                "--envoy" => options.programs.envoy = value.into(),
                "--only" => options.only = command_line::names(value),
                "--rounds" => options.rounds = command_line::number(value, 1..=usize::MAX)?,
                "--seconds" => options.seconds = command_line::number(value, 3..=60)?,
                "--service" => options.service_time = ServiceTime::named(value)?,
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }

    fn contestants(&self) -> io::Result<Vec<Contestant>> {
        let mut all = Contestant::ALL.to_vec();
        if let Some(name) = self.only.iter().find(|name| !all.iter().any(|it| it.name() == **name)) {
            return Err(io::Error::other(format!("no contestant is called `{name}`\n{USAGE}")));
        }
        all.retain(|it| self.only.is_empty() || self.only.iter().any(|name| name == it.name()));
        Ok(all)
    }
}

fn run(options: &Options) -> io::Result<()> {
    let contestants = options.contestants()?;
    let mut versions = BTreeMap::new();
    for contestant in &contestants {
        let (program, version) = contestant.version(&options.programs)?;
        versions.insert(program, version);
    }
    let setting = Setting {
        machine: Machine::here(),
        versions,
        workers: WORKERS,
        service_ms: SERVICE_TIME.as_secs_f64() * 1e3,
        service_time: options.service_time.name(),
        capacity: capacity(WORKERS),
        seconds: options.seconds,
    };
    idle::make_room_for(DESCRIPTORS)?;
    let folder = report::target()?.join("bench/overload");
    fs::create_dir_all(&folder)?;
    let (programs, plan) = (options.programs.clone(), Plan::new(options.seconds));
    let track = Track { programs, folder, plan, service_time: options.service_time };
    let rows = measure(&track, &contestants, options.rounds)?;
    let mut remarks = Vec::new();
    if contestants.len() < Contestant::ALL.len() {
        remarks.push("only some contestants were run".into());
    }
    let report = OverloadReport::new(setting, rows, remarks);
    println!("{report}");
    println!("\nwritten to {}", report::write("overload", &report)?.display());
    println!("configurations are in {}", track.folder.display());
    Ok(())
}

/// Measures the contestants in turns, so that noise affects all of them.
fn measure(track: &Track, contestants: &[Contestant], rounds: usize) -> io::Result<Vec<Row>> {
    let mut measured = Vec::new();
    for round in 1..=rounds {
        for contestant in contestants {
            let name = contestant.name();
            let phases = track.measure(*contestant)?;
            for (case, figures) in phases {
                let goodput = figures.goodput * 100.0;
                eprintln!("round {round} of {rounds}: {name}, {case}: {goodput:.0} % of the capacity");
                measured.push((case, name, figures));
            }
        }
    }
    let entries = CASES.iter().flat_map(|case| contestants.iter().map(move |it| (*case, it.name())));
    let rows = entries.filter_map(|(case, subject)| {
        let of_entry = measured.iter().filter(|it| (it.0, it.1) == (case, subject));
        let figures: Vec<_> = of_entry.map(|it| it.2).collect();
        (!figures.is_empty()).then(|| Row::new(case, subject, figures))
    });
    Ok(rows.collect())
}
