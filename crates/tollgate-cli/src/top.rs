//! `tollgate top`: live activity in a terminal.
//!
//! - `poll`: queries the server.
//! - `data`: the responses, sanitized.
//! - `state`: the state of the screen, and its key bindings.
//! - `draw`, `words`: layout and text.
//! - `screen`: the terminal.
//! - `plain`: a snapshot as text.

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
use tollgate_daemon::{Environment, Failure};

pub(crate) use tollgate_sim::plot::number::count as number;

use crate::arguments::Top;
use crate::client::Server;
use crate::output;
use draw::Palette;
use poll::Poll;

/// The timeout of a request, short because a person waits.
const REQUEST_TIMEOUT: Span = Span::from_secs(5);

/// Shows activity: live on a terminal, once elsewhere.
pub(crate) fn run(arguments: &Top, environment: &Environment) -> Result<ExitCode, Failure> {
    let poll = Poll(Server::of(&arguments.api, environment)?.within(REQUEST_TIMEOUT));
    if arguments.api.json {
        output::line(&poll.raw()?.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before the terminal is taken over, so that a wrong address is a normal error.
    let first = poll.look()?;
    let is_dumb = environment.common("TERM").is_none_or(|terminal| terminal == "dumb");
    if arguments.once || is_dumb || !io::stdout().is_terminal() {
        output::text(&plain::snapshot(poll.url(), first))?;
        return Ok(ExitCode::SUCCESS);
    }
    let colors = environment.common("NO_COLOR").is_none();
    screen::show(poll, first, Palette { colors })
}

/// Formats a share from 0 to 1 as a percentage, rounded down.
fn percent(share: f64) -> String {
    format!("{:.0} %", (share.clamp(0.0, 1.0) * 100.0).floor())
}
