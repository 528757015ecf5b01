//! `tollgate top`: what happens now, in a terminal.
//!
//! - `poll`: asks the server.
//! - `data`: what it tells, made harmless.
//! - `state`: what is shown, and what keys do to it.
//! - `draw`, `words`: how it looks, and what it says.
//! - `screen`: the terminal itself.
//! - `plain`: the same once, as text.

mod data;
mod draw;
mod plain;
mod poll;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod words;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use tollgate::Span;

pub(crate) use tollgate_sim::plot::number::count as number;

use crate::arguments::Top;
use crate::client::Server;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::output;
use draw::Palette;
use poll::Poll;

/// Whoever watches wants to know soon that nobody answers.
const REQUEST_TIMEOUT: Span = Span::from_secs(5);

/// Shows what happens: live on a terminal, once elsewhere.
pub(crate) fn run(arguments: &Top, environment: &Environment) -> Result<ExitCode, Failure> {
    let poll = Poll(Server::of(&arguments.api, environment)?.within(REQUEST_TIMEOUT));
    if arguments.api.json {
        output::line(&poll.raw()?.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before the terminal is taken: a wrong address is told like anywhere else.
    let first = poll.look()?;
    let is_dumb = environment.common("TERM").is_none_or(|terminal| terminal == "dumb");
    if arguments.once || is_dumb || !io::stdout().is_terminal() {
        output::text(&plain::snapshot(poll.url(), first))?;
        return Ok(ExitCode::SUCCESS);
    }
    let colors = environment.common("NO_COLOR").is_none();
    screen::show(poll, first, Palette { colors })
}

/// A share from 0 to 1, rounded down: what is not all gone is not told as more than it is.
fn percent(share: f64) -> String {
    format!("{:.0} %", (share.clamp(0.0, 1.0) * 100.0).floor())
}
