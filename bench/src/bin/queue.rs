//! Compares the delays of nginx's `limit_req` with those of the imported policy: one run, one table, one JSON file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

use tollgate_bench::command_line;
use tollgate_bench::queue::{Case, QueueReport, measure};
use tollgate_bench::report::{self, Machine};

const USAGE: &str = "usage: queue [OPTION VALUE]...
  --tollgate PATH  the program, instead of the one beside this one
  --rounds N       how often the same requests are sent (3)";

fn main() -> ExitCode {
    command_line::run("queue", USAGE, |arguments| {
        Options::read(arguments).and_then(|options| run(&options).map_err(|error| error.to_string()))
    })
}

/// Command line options.
struct Options {
    tollgate: PathBuf,
    rounds: usize,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let tollgate = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("tollgate");
        let mut options = Self { tollgate, rounds: 3 };
        command_line::read(arguments, USAGE, |option, value| {
            match option {
                "--tollgate" => options.tollgate = value.into(),
                "--rounds" => options.rounds = command_line::number(value, 1..=usize::MAX)?,
                _ => return None,
            }
            Some(())
        })?;
        Ok(options)
    }
}

fn run(options: &Options) -> io::Result<()> {
    let folder = report::target()?.join("bench/queue");
    fs::create_dir_all(&folder)?;
    let mut rows = Vec::new();
    for case in Case::ALL {
        eprintln!("limit_req {}", case.words);
        rows.push(measure(case, &options.tollgate, &folder, options.rounds)?);
    }
    let report = QueueReport::new(Machine::here(), rows);
    println!("{report}");
    println!("\nwritten to {}", report::write("queue", &report)?.display());
    Ok(())
}
