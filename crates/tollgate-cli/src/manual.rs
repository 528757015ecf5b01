//! `tollgate man`: manual pages, generated from the help of the commands.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use tollgate_daemon::Failure;
use tollgate_daemon::io_error::Attempt;

use crate::arguments::Arguments;
use crate::output;

/// Prints the page of the program, or writes a page for each command.
pub(crate) fn run(dir: Option<&Path>) -> Result<ExitCode, Failure> {
    let mut program = Arguments::command();
    program.build();
    let Some(dir) = dir else {
        output::text(&page(program)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let commands: Vec<_> = program.get_subcommands().filter(|it| it.get_name() != "help").cloned().collect();
    output::file(&dir.join("tollgate.1"), &page(program)?)?;
    for command in commands {
        let file = format!("tollgate-{}.1", command.get_name());
        output::file(&dir.join(file), &page(command)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders a page. It has no date, so that two builds have the same pages.
fn page(command: Command) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::io("cannot write the manual page", &error, Attempt::Other);
    let mut page = Vec::new();
    let source = format!("tollgate {}", env!("CARGO_PKG_VERSION"));
    Man::new(command).source(source).manual("Tollgate").render(&mut page).map_err(failed)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
