//! `tollgate simulate --callers`: compares the manners of clients that share a limit of a service.

use std::process::ExitCode;

use tollgate_daemon::{Environment, Failure};
use tollgate_sim::callers::{
    CallerManner, CallersError, CallersReport, CallersScenario, MannerReport, compare_callers,
};
use tollgate_sim::plot::number::count;

use super::options::{chosen, time};
use super::text::{Column, folded, seconds, table};
use super::width_and_color;
use crate::arguments::Simulate;
use crate::output;

const LEGEND: &str = "answered: calls that were admitted in time. attempts: requests to the service. 429: requests that were refused. \
     goodput: admitted calls as a share of those that the limit admits. fairness: Jain's index over the clients, 1 if each has the \
     same share of its calls answered. p50, p99: the time of answered calls.";

pub(super) fn run(
    manners: &str,
    arguments: &Simulate,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let report = compare_callers(&scenario(manners, arguments)?).map_err(|error| failure(&error))?;
    if arguments.json {
        output::line(&serde_json::to_string(&report).map_err(Failure::new)?)?;
    } else {
        output::text(&text(&report, width_and_color(environment).0))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn scenario(manners: &str, arguments: &Simulate) -> Result<CallersScenario, Failure> {
    let usual = CallersScenario::default();
    let known = CallerManner::ALL.map(CallerManner::word);
    let manners = chosen(("--callers", "manner"), Some(manners), &known, CallerManner::of)?;
    let limit = match &*arguments.rates {
        [] => usual.limit.clone(),
        [rate] => rate.clone(),
        _ => {
            return Err(Failure::with_help(
                "clients share one limit, and several rates are given",
                "compare one after the other",
            ));
        }
    };
    let limit = match arguments.burst {
        Some(burst) => format!("{}, burst {burst}", limit.split(',').next().unwrap_or_default()),
        None => limit,
    };
    Ok(CallersScenario {
        limit,
        clients: arguments.clients.unwrap_or(usual.clients),
        load: arguments.load.unwrap_or(usual.load),
        duration: time("--duration", arguments.duration.as_deref(), usual.duration)?,
        manners: manners.unwrap_or(usual.manners),
        seed: arguments.seed.unwrap_or(usual.seed),
        ..usual
    })
}

fn failure(error: &CallersError) -> Failure {
    let flag = match error {
        CallersError::Limit(_) => "--rate",
        CallersError::Clients => "--clients",
        CallersError::Load => "--load",
        _ => "--callers",
    };
    Failure::new(format_args!("{flag}: {error}"))
}

/// Renders the parameters, the table and its interpretation.
fn text(report: &CallersReport, width: usize) -> String {
    let mut out = format!(
        "\n{} for {} clients, load {} for {}, a call has {}, seed {}\n\n",
        report.limit,
        report.clients,
        report.load,
        seconds(report.duration_s),
        seconds(report.timeout_s),
        report.seed,
    );
    let columns = vec![
        column("calls", |it| count(it.calls)),
        column("answered", |it| count(it.answered)),
        column("attempts", |it| count(it.attempts)),
        column("429", |it| count(it.refused)),
        column("429 share", |it| format!("{:.1} %", it.refused_share * 100.0)),
        column("goodput", |it| format!("{:.3}", it.goodput)),
        column("fairness", |it| format!("{:.3}", it.fairness)),
        column("p50", |it| format!("{:.2} s", it.p50_s)),
        column("p99", |it| format!("{:.2} s", it.p99_s)),
    ];
    out.push_str(&table(&report.manners, |it| it.manner.word(), &columns));
    out.push('\n');
    out.push_str(&folded("", LEGEND, width));
    out
}

fn column(heading: &str, of: impl Fn(&MannerReport) -> String + 'static) -> Column<'_, MannerReport> {
    (heading, Box::new(of))
}
