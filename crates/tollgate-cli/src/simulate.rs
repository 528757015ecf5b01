//! `tollgate simulate`: algorithms side by side, on a shape of traffic or on a log.
//!
//! - `options`: from what was typed to what it means.
//! - `on_log`: a log instead of a shape.
//! - `text`: numbers for people.
//!
//! Not here: traffic, deciding and counting (`tollgate_sim`), opening logs (`replay::input`).

mod on_log;
mod options;
mod text;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use tollgate_sim::log::Tally;
use tollgate_sim::plot::Chart;
use tollgate_sim::simulate::{Round, Simulation, arrivals, window};

use crate::arguments::{Picture, Simulate};
use crate::configuration::shown;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};
use crate::output;

/// What a picture in a terminal is given, where nobody says how wide that is.
const DEFAULT_WIDTH: usize = 100;
/// Wider ones are hard to read.
const MAX_WIDTH: usize = 120;

/// What was found out, in all.
#[derive(Serialize)]
struct Report {
    /// Of a log: what was read.
    log: Option<LogRead>,
    rates: Vec<Round>,
}

/// What was read of a log.
#[derive(Serialize)]
struct LogRead {
    requests: u64,
    lines: u64,
    skipped_lines: u64,
    late: u64,
}

impl From<Tally> for LogRead {
    fn from(tally: Tally) -> Self {
        let Tally { lines, skipped, late, .. } = tally;
        Self { requests: lines - skipped, lines, skipped_lines: skipped, late }
    }
}

pub(crate) fn run(arguments: &Simulate, environment: &Environment) -> Result<ExitCode, Failure> {
    if arguments.rates.len() > 1 && (arguments.svg.is_some() || arguments.png.is_some()) {
        return Err(Failure::with_help(
            "a picture is of one rate, and several are given",
            "draw one after the other, each into a file of its own",
        ));
    }
    let report = if arguments.logs.is_empty() {
        let questions = options::questions(arguments)?;
        let each = questions.into_iter().map(|question| {
            Simulation::new(question).map(Simulation::run).map_err(|error| Failure::new(&error))
        });
        Report { log: None, rates: each.collect::<Result<_, _>>()? }
    } else {
        on_log::report(arguments)?
    };
    for (file, draw) in [
        (&arguments.svg, (|chart| chart.svg().into_bytes()) as fn(&Chart) -> Vec<u8>),
        (&arguments.png, |chart| chart.png()),
    ] {
        if let (Some(file), Some(round)) = (file, report.rates.first()) {
            write(file, &draw(&picture(round, arguments.chart)))?;
        }
    }
    if arguments.json {
        let told = serde_json::to_string(&report).map_err(Failure::new)?;
        output::line(&told)?;
    } else {
        output::text(&told(&report, arguments, environment))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// For people: a picture where it fits, then the numbers, then what to make of them.
fn told(report: &Report, arguments: &Simulate, environment: &Environment) -> String {
    let is_dumb = environment.common("TERM").is_none_or(|terminal| terminal == "dumb");
    let is_terminal = io::stdout().is_terminal() && !is_dumb;
    let colour = is_terminal && environment.common("NO_COLOR").is_none();
    let width = if is_terminal { columns() } else { DEFAULT_WIDTH };
    let mut out = String::new();
    if let Some(log) = &report.log {
        out.push_str(&text::log(log));
    }
    for round in &report.rates {
        out.push_str(&text::headline(round));
        // A log is about exactness; a picture of it is drawn where one is asked for.
        if report.log.is_none() || arguments.chart.is_some() {
            out.push('\n');
            out.push_str(&picture(round, arguments.chart).terminal(width, colour));
            out.push('\n');
        }
        out.push_str(&text::round(round, width));
    }
    let comes_back = report.rates.iter().flat_map(|it| &it.traffic).any(|it| it.retry.is_some());
    out.push_str(&text::legend(report.log.is_some(), comes_back, width));
    out
}

/// The picture that is asked for, or the one that shows most: of clients that come back, when they do; else what was let through
/// beyond the limit.
fn picture(round: &Round, asked: Option<Picture>) -> Chart {
    let comes_back = round.traffic.as_ref().is_some_and(|it| it.retry.is_some());
    let usual = if comes_back || round.traffic.is_none() { Picture::Arrivals } else { Picture::Window };
    match asked.unwrap_or(usual) {
        Picture::Window => window(round),
        Picture::Arrivals => arrivals(round),
    }
}

/// How wide the terminal is.
fn columns() -> usize {
    let size = ratatui::crossterm::terminal::size();
    size.map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns).clamp(40, MAX_WIDTH))
}

fn write(file: &Path, picture: &[u8]) -> Result<(), Failure> {
    fs::write(file, picture).map_err(|error| {
        Failure::new(format_args!("cannot write {}: {}", shown(file), reason(&error, Attempt::Write)))
    })
}
