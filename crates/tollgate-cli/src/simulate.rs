//! `tollgate simulate`: compares algorithms on generated traffic or on a log, and protections against overload.
//!
//! - `callers`: manners of clients instead of algorithms.
//! - `fleet`: ways to share a limit instead of algorithms.
//! - `options`: parses arguments.
//! - `on_log`: a log instead of generated traffic.
//! - `overload`: protections instead of algorithms.
//! - `text`: tables for terminals.
//!
//! Traffic, deciding and counting are in `tollgate_sim`, opening logs in `replay::input`.

mod callers;
mod fleet;
mod on_log;
mod options;
mod overload;
mod text;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use tollgate_daemon::{Environment, Failure};
use tollgate_sim::log::Tally;
use tollgate_sim::plot::Chart;
use tollgate_sim::simulate::{Round, Simulation, arrivals, window};

use crate::arguments::{Picture, Simulate};
use crate::output;

/// The width of a chart if the width of the terminal is unknown.
const DEFAULT_WIDTH: usize = 100;
/// The maximum width of a chart.
const MAX_WIDTH: usize = 120;

/// The results of all rounds.
#[derive(Serialize)]
struct Report {
    /// The counts of the lines that were read; `None` for generated traffic.
    log: Option<LogRead>,
    rates: Vec<Round>,
}

/// The counts of a log that was read.
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
    let names_png = |file: &Path| file.extension().is_some_and(|it| it.eq_ignore_ascii_case("png"));
    if arguments.png.is_some() || arguments.svg.as_deref().is_some_and(names_png) {
        return Err(Failure::with_help(
            "tollgate simulate does not write PNG",
            "write an SVG file, with --svg chart.svg; a browser or rsvg-convert turns it into PNG",
        ));
    }
    if arguments.rates.len() > 1 && arguments.svg.is_some() {
        return Err(Failure::with_help(
            "a picture is of one rate, and several are given",
            "draw one after the other, each into a file of its own",
        ));
    }
    if let Some(shape) = &arguments.overload {
        return overload::run(shape, arguments, environment);
    }
    if let Some(manners) = &arguments.callers {
        return callers::run(manners, arguments, environment);
    }
    if let Some(shape) = &arguments.fleet {
        return fleet::run(shape, arguments, environment);
    }
    let help = match arguments.chart {
        Some(Picture::Goodput | Picture::Latency | Picture::Critical) => "add --overload step",
        Some(Picture::Admitted | Picture::Calls) => "add --fleet",
        None | Some(Picture::Window | Picture::Arrivals) => "",
    };
    if let Some(chart) = arguments.chart.filter(|_| !help.is_empty()) {
        return Err(Failure::with_help(
            format_args!("`--chart {}` is not a chart of algorithms", chart_word(chart)),
            format_args!("{help}, or take `window` or `arrivals`"),
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
    if let (Some(file), Some(round)) = (&arguments.svg, report.rates.first()) {
        output::file(file, &picture(round, arguments.chart).svg())?;
    }
    if arguments.json {
        let json = serde_json::to_string(&report).map_err(Failure::new)?;
        output::line(&json)?;
    } else {
        output::text(&text_report(&report, arguments, environment))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the chart of a report to the requested file, and the report as JSON or as text.
fn print<R: Serialize>(
    report: &R,
    chart: fn(&R) -> Chart,
    text: fn(&R, &str, usize) -> String,
    arguments: &Simulate,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    if let Some(file) = &arguments.svg {
        output::file(file, &chart(report).svg())?;
    }
    if arguments.json {
        output::line(&serde_json::to_string(report).map_err(Failure::new)?)?;
    } else {
        let (width, color) = width_and_color(environment);
        output::text(&text(report, &chart(report).terminal(width, color), width))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the word of a chart on the command line.
const fn chart_word(chart: Picture) -> &'static str {
    match chart {
        Picture::Window => "window",
        Picture::Arrivals => "arrivals",
        Picture::Goodput => "goodput",
        Picture::Latency => "latency",
        Picture::Critical => "critical",
        Picture::Admitted => "admitted",
        Picture::Calls => "calls",
    }
}

/// Renders a chart if it fits, then the tables and their interpretation.
fn text_report(report: &Report, arguments: &Simulate, environment: &Environment) -> String {
    let (width, colour) = width_and_color(environment);
    let mut out = String::new();
    if let Some(log) = &report.log {
        out.push_str(&text::log(log));
    }
    for round in &report.rates {
        out.push_str(&text::headline(round));
        // The result of a log is about exactness; its chart is drawn only on request.
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

/// Returns the width of a chart on standard output, and whether it has colors.
fn width_and_color(environment: &Environment) -> (usize, bool) {
    let is_dumb = environment.common("TERM").is_none_or(|terminal| terminal == "dumb");
    let is_terminal = io::stdout().is_terminal() && !is_dumb;
    let color = is_terminal && environment.common("NO_COLOR").is_none();
    (if is_terminal { columns() } else { DEFAULT_WIDTH }, color)
}

/// Returns the requested chart, or the most informative one: arrivals for traffic with retries,
/// otherwise the admitted requests per window.
fn picture(round: &Round, requested: Option<Picture>) -> Chart {
    let comes_back = round.traffic.as_ref().is_some_and(|it| it.retry.is_some());
    let usual = if comes_back || round.traffic.is_none() { Picture::Arrivals } else { Picture::Window };
    match requested.unwrap_or(usual) {
        Picture::Window => window(round),
        // Charts of protections and of fleets were rejected before.
        Picture::Arrivals
        | Picture::Goodput
        | Picture::Latency
        | Picture::Critical
        | Picture::Admitted
        | Picture::Calls => arrivals(round),
    }
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = ratatui::crossterm::terminal::size();
    size.map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns).clamp(40, MAX_WIDTH))
}
