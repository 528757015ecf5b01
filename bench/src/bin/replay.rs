//! Benchmarks `tollgate replay` against goaccess on the same generated log: one run, one table, one JSON file.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::replay::report::Row;
use tollgate_bench::replay::{Contestant, ReplayReport, made};
use tollgate_bench::report::{self, Machine};

const USAGE: &str = "usage: replay [OPTION VALUE]...
  --tollgate PATH  the program, instead of the one beside this one
  --lines N        of the small log; the large one has four times as many (1000000)
  --rounds N       how often each reads the small log (3); the large one is read once";

fn main() -> ExitCode {
    command_line::run("replay", USAGE, |arguments| {
        Options::read(arguments).and_then(|options| run(&options).map_err(|error| error.to_string()))
    })
}

/// Command line options.
struct Options {
    tollgate: PathBuf,
    lines: usize,
    rounds: usize,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let tollgate = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("tollgate");
        let mut options = Self { tollgate, lines: 1_000_000, rounds: 3 };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--tollgate" => options.tollgate = value.into(),
                "--lines" => options.lines = command_line::number(value, 1..=made::MAX_LINES / 4)?,
                "--rounds" => options.rounds = command_line::number(value, 1..=usize::MAX)?,
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }
}

fn run(options: &Options) -> io::Result<()> {
    let goaccess = Command::new("goaccess").arg("--version").output();
    let goaccess = goaccess.map_err(|error| io::Error::other(format!("cannot start goaccess: {error}")))?;
    let goaccess = String::from_utf8_lossy(&goaccess.stdout).lines().next().unwrap_or_default().to_owned();
    let folder = report::target()?.join("bench/replay");
    fs::create_dir_all(&folder)?;
    let log = folder.join("access.log");
    let mut rows = Vec::new();
    for (lines, rounds) in [(options.lines, options.rounds), (4 * options.lines, 1)] {
        made::write(&log, lines)?;
        let mut readings = [Vec::new(), Vec::new()];
        for round in 1..=rounds {
            for (contestant, readings) in Contestant::ALL.iter().zip(&mut readings) {
                let reading = contestant.read(&options.tollgate, &log, lines, &folder)?;
                eprintln!(
                    "{lines} lines, round {round} of {rounds}: {}: {:.2} s",
                    contestant.name(),
                    reading.seconds
                );
                readings.push(reading);
            }
        }
        let measured = Contestant::ALL.iter().zip(readings);
        rows.extend(measured.map(|(contestant, readings)| Row::new(lines, *contestant, readings)));
    }
    fs::remove_file(&log)?;
    let report = ReplayReport::new(Machine::here(), goaccess, rows);
    println!("{report}");
    println!("\nwritten to {}", report::write("replay", &report)?.display());
    Ok(())
}
