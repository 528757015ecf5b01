//! Clients under the limits of servers: 100 tasks that call as fast as they can, one table, one JSON file.
//!
//! - [`limited`]: one process under a limit of Tollgate's gateway, in every dialect, beside other clients.
//! - [`foreign`]: servers in another language, like those of GitHub, Discord and `OpenAI`, beside the clients of these.
//! - [`shared`]: four processes that share one budget through Redis.
//! - [`storm`]: 50 clients and a server that fails, with and without a retry budget.
//! - [`watch`]: what happened to attempts.
//!
//! Bars are printed, not enforced.

mod foreign;
mod limited;
mod report;
mod shared;
mod storm;
mod subject;
mod watch;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use report::Report;

const USAGE: &str = "usage: tollgate-bench-client [OPTION VALUE]...
  --tollgate PATH  the program `tollgate` (beside this program)
  --calls N        calls of each case (10000)
  --peers no       Tollgate's client alone
  --only CASES     some cases, with commas: dialects, github-like, discord-like, openai-like, shared, storm";

/// Command line options.
struct Options {
    tollgate: PathBuf,
    calls: usize,
    only: Option<String>,
    has_peers: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some(shared::WORKER) => shared::work(&arguments[1..]),
        _ => run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let options = read(arguments)?;
    let binary = options.tollgate.to_str().ok_or("the path of tollgate is not UTF-8")?;
    let is_chosen =
        |case: &str| options.only.as_deref().is_none_or(|only| only.split(',').any(|it| is_case(case, it)));
    let mut rows = Vec::new();
    for case in limited::CASES.iter().filter(|case| is_chosen(case.name)) {
        eprintln!("{}", case.name);
        rows.extend(limited::measure(case, binary, options.calls, options.has_peers)?);
    }
    for case in foreign::CASES.iter().filter(|case| is_chosen(case.name)) {
        eprintln!("{}", case.name);
        rows.extend(foreign::measure(case, options.calls, options.has_peers)?);
    }
    if is_chosen(shared::CASE) {
        eprintln!("{}", shared::CASE);
        rows.push(shared::measure(binary, options.calls)?);
    }
    let mut storms = Vec::new();
    if is_chosen(storm::CASE) {
        eprintln!("{}", storm::CASE);
        storms = storm::measure()?;
    }
    let report = Report::new(rows, storms);
    println!("{report}");
    println!("\nwritten to {}", report.write()?.display());
    Ok(())
}

/// Whether a case is the chosen one, or a variant of it.
fn is_case(case: &str, chosen: &str) -> bool {
    case.split(',').next() == Some(chosen)
}

fn read(arguments: &[String]) -> Result<Options, Box<dyn Error>> {
    let tollgate = std::env::current_exe()?.with_file_name("tollgate");
    let mut options = Options { tollgate, calls: 10_000, only: None, has_peers: true };
    for pair in arguments.chunks(2) {
        match pair {
            [option, value] if option == "--tollgate" => options.tollgate = value.into(),
            [option, value] if option == "--calls" => options.calls = value.parse()?,
            [option, value] if option == "--peers" => options.has_peers = value != "no",
            [option, value] if option == "--only" => options.only = Some(value.clone()),
            _ => return Err(USAGE.into()),
        }
    }
    if !options.tollgate.exists() {
        return Err(format!(
            "there is no {}: cargo build --release -p tollgate-cli",
            options.tollgate.display()
        )
        .into());
    }
    Ok(options)
}
