//! The binary `tollgate`.
//!
//! `arguments` parses the command line, and `init`, `doctor`, `serve`, `ratelimit`, `client`, `top`, `validate`, `test`,
//! `replay`, `simulate`, `bench` and `import` run the commands. The service and its configuration are in
//! `tollgate_daemon`.
//!
//! Exit status: 0 success, 1 a finding (such as a refused check), 2 a mistake in usage or
//! configuration. Results go to standard output, everything else to standard error.

mod arguments;
mod banner;
mod bench;
mod client;
mod doctor;
mod import;
mod init;
mod manual;
mod output;
mod ratelimit;
mod ready_file;
mod replay;
mod serve;
mod simulate;
mod test;
mod top;
mod validate;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tollgate_daemon::{Environment, Failure, use_huge_pages};

use arguments::{Arguments, Command};
use client::Operation;

/// A gateway request makes about a dozen allocations of the same sizes, for which mimalloc is fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before memory is touched: each first touch may take two megabytes.
    use_huge_pages(false);
    // Exits with 2 on a mistake, with 0 on `--help`.
    let arguments = Arguments::try_parse_from(ratelimit::command_line(std::env::args_os()));
    let arguments = arguments.unwrap_or_else(|error| arguments::explain(error).exit());
    run(arguments.command).unwrap_or_else(|failure| {
        output::complain(&failure.to_string());
        ExitCode::from(2)
    })
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    // Commands that work through much memory and end, such as `replay`, are faster with them.
    use_huge_pages(!matches!(command, Command::Serve(_) | Command::Ratelimit(_)));
    let environment = Environment::read()?;
    match command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments, &environment),
        Command::Ratelimit(arguments) => ratelimit::run(&arguments, &environment),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments, &environment),
        Command::Simulate(arguments) => simulate::run(&arguments, &environment),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Check(arguments) => client::check(&arguments, &environment),
        Command::Peek(arguments) => client::named(Operation::Peek, &arguments, &environment),
        Command::Reset(arguments) => client::named(Operation::Reset, &arguments, &environment),
        Command::Grant(arguments) => client::amount(Operation::Grant, &arguments, &environment),
        Command::Refund(arguments) => client::amount(Operation::Refund, &arguments, &environment),
        Command::Limits(arguments) => client::limits(&arguments, &environment),
        Command::Health(arguments) => client::health(&arguments, &environment),
        Command::Doctor(arguments) => doctor::run(&arguments, &environment),
        Command::Explain(arguments) => client::explain(&arguments, &environment),
        Command::Decisions(arguments) => client::decisions(&arguments, &environment),
        Command::Top(arguments) => top::run(&arguments, &environment),
        Command::Mode(arguments) => client::mode(&arguments, &environment),
        Command::Changes(arguments) => client::changes(&arguments, &environment),
        Command::Schema { tests } => {
            let schema = if tests { tollgate_policy_test::schema() } else { tollgate::policy::schema() };
            output::line(&format!("{schema:#}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "tollgate", &mut script);
            output::text(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => manual::run(dir.as_deref()),
    }
}
