//! Measures a service with a PostgreSQL pool under overload, with and without a ceiling before the pool: one run, one
//! table, one JSON file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::pool::{PoolReport, Variant, measure};
use tollgate_bench::report::{self, Machine};
use tollgate_testkit::Postgres;

const USAGE: &str = "usage: pool [OPTION VALUE]...
  --service PATH   the example `postgres_pool`, instead of the one of this build
  --seconds N      the length of the load on each variant (10)";

fn main() -> ExitCode {
    command_line::run("pool", USAGE, |arguments| {
        Options::read(arguments).and_then(|options| run(&options).map_err(|error| error.to_string()))
    })
}

/// Command line options.
struct Options {
    service: PathBuf,
    time: Duration,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let here = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut options = Self {
            service: here.with_file_name("examples").join("postgres_pool"),
            time: Duration::from_secs(10),
        };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--service" => options.service = value.into(),
                "--seconds" => options.time = Duration::from_secs(command_line::number(value, 1..=3_600)?),
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }
}

fn run(options: &Options) -> io::Result<()> {
    let folder = report::target()?.join("bench/pool");
    fs::create_dir_all(&folder)?;
    let postgres = Postgres::start();
    let mut rows = Vec::new();
    for variant in Variant::ALL {
        eprintln!("{}", variant.name);
        rows.push(measure(variant, &options.service, &postgres.url(), &folder, options.time)?);
    }
    let report = PoolReport::new(Machine::here(), postgres.sql("SHOW server_version"), rows);
    println!("{report}");
    println!("\nwritten to {}", report::write("pool", &report)?.display());
    Ok(())
}
