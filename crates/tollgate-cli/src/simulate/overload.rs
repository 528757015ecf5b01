//! `tollgate simulate --overload`: compares protections of a service.

use std::fmt::Write as _;
use std::process::ExitCode;

use tollgate_daemon::{Environment, Failure};
use tollgate_sim::overload::{
    OverloadReport, OverloadRun, Protection, ProtectionReport, Scenario, ScenarioError, Shape, critical,
    goodput, latency,
};
use tollgate_sim::plot::Chart;
use tollgate_sim::plot::number::count;

use super::options::{chosen, time, unknown};
use super::text::{Column, folded, seconds, table};
use super::{chart_word, print};
use crate::arguments::{Picture, Simulate};

const LEGEND: &str = "goodput: calls answered within a second during the overload, of those that were possible. p50, p99: latency of what \
     was admitted in the overload, in ms. critical, normal, bulk: success of their calls in the overload. after: success of \
     calls after the overload. recovered: time after the overload until success and latency are as before.";

pub(super) fn run(shape: &str, arguments: &Simulate, environment: &Environment) -> Result<ExitCode, Failure> {
    let scenario = scenario(shape, arguments)?;
    let chart = chart_of(arguments.chart)?;
    let report = OverloadRun::new(scenario).map_err(|error| failure(&error))?.run();
    print(&report, chart, text, arguments, environment)
}

fn chart_of(picture: Option<Picture>) -> Result<fn(&OverloadReport) -> Chart, Failure> {
    match picture {
        None | Some(Picture::Goodput) => Ok(goodput),
        Some(Picture::Latency) => Ok(latency),
        Some(Picture::Critical) => Ok(critical),
        Some(other) => Err(Failure::with_help(
            format_args!("`--chart {}` is not a chart of an overload", chart_word(other)),
            "with --overload there are goodput, latency and critical",
        )),
    }
}

fn scenario(shape: &str, arguments: &Simulate) -> Result<Scenario, Failure> {
    let known = Shape::ALL.map(Shape::word);
    let shape = Shape::of(shape).ok_or_else(|| unknown("--overload", shape, "overload", &known))?;
    let usual = Scenario::new(shape);
    let known = Protection::ALL.map(Protection::word);
    let protections =
        chosen(("--protection", "protection"), arguments.protection.as_deref(), &known, Protection::of)?;
    Ok(Scenario {
        protections: protections.unwrap_or(usual.protections),
        workers: arguments.workers.unwrap_or(usual.workers),
        service_time: time("--service-time", arguments.service_time.as_deref(), usual.service_time)?,
        load: arguments.load.unwrap_or(usual.load),
        duration: time("--duration", arguments.duration.as_deref(), usual.duration)?,
        seed: arguments.seed.unwrap_or(usual.seed),
        ..usual
    })
}

fn failure(error: &ScenarioError) -> Failure {
    match error {
        ScenarioError::Workers => Failure::new(format_args!("--workers: {error}")),
        ScenarioError::ServiceTime => Failure::new(format_args!("--service-time: {error}")),
        ScenarioError::Load => Failure::new(format_args!("--load: {error}")),
        ScenarioError::Duration => Failure::new(format_args!("--duration: {error}")),
        _ => Failure::new(error),
    }
}

/// Renders the parameters, a chart, the table and its interpretation.
fn text(report: &OverloadReport, chart: &str, width: usize) -> String {
    let mut out = format!(
        "\n{}: {}\n{} workers of {} ms, {} calls a second; load {}, for {}, seed {}\n\n{chart}\n\n",
        report.shape,
        report.words,
        count(report.workers.into()),
        report.service_time_ms,
        rounded(report.capacity),
        report.load,
        seconds(report.duration_s),
        report.seed,
    );
    let success = |class: usize| {
        move |it: &ProtectionReport| it.classes.get(class).map_or_else(String::new, |it| percent(it.success))
    };
    let mut columns = vec![
        column("attempts", |it| count(it.attempts)),
        column("goodput", |it| percent(it.goodput)),
        column("p50", |it| count(it.p50_ms)),
        column("p99", |it| count(it.p99_ms)),
    ];
    columns.extend(report.mix.iter().enumerate().map(|(place, class)| column(class.name, success(place))));
    if report.protections.iter().any(|it| it.routes.is_some()) {
        columns.push(column("other routes", |it| {
            it.routes.as_ref().and_then(|it| it.get(1)).map_or_else(String::new, |it| percent(it.success))
        }));
    }
    columns.push(column("after", |it| percent(it.success_after)));
    columns.push(column("recovered", |it| match it.recovered_after_s {
        None => "no".to_owned(),
        Some(time) if time <= 0.0 => "at once".to_owned(),
        Some(time) => format!("{time:.1} s"),
    }));
    out.push_str(&table(&report.protections, |it| it.protection.word(), &columns));
    out.push('\n');
    for it in &report.protections {
        out.push_str(&folded(&format!("{:<16}  ", it.protection.word()), &it.words, width));
    }
    for note in &report.notes {
        out.push_str(&folded("note: ", note, width));
    }
    let _never = write!(out, "\n{}", folded("", LEGEND, width));
    out
}

fn column(heading: &str, of: impl Fn(&ProtectionReport) -> String + 'static) -> Column<'_, ProtectionReport> {
    (heading, Box::new(of))
}

/// Formats a share with one digit, and so that only all is 100 %.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let shown = if share < 1.0 { percent.min(99.9) } else { percent };
    format!("{shown:.1} %")
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive rate, for people")]
fn rounded(number: f64) -> String {
    count(number.round() as u64)
}
