//! `tollgate simulate --fleet`: compares the ways in which nodes can share a limit.

use std::fmt::Write as _;
use std::process::ExitCode;

use tollgate::{Bucket, Span};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::RateText;
use tollgate_document::sanitize::Printable;
use tollgate_sim::fleet::{
    FleetError, FleetMode, FleetModeReport, FleetReport, FleetScenario, compare_fleet, fleet_admitted,
    fleet_calls,
};
use tollgate_sim::plot::Chart;
use tollgate_sim::plot::number::count;
use tollgate_sim::simulate::{Choice, Contestant};
use tollgate_sim::traffic::Shape;

use super::options::{as_failure, chosen, time, unknown};
use super::text::{Column, folded, seconds, table};
use super::{chart_word, print};
use crate::arguments::{Picture, Simulate};

const LEGEND: &str = "calls: calls to the store. calls/request: for each request. waited: requests that waited for a call. overshoot: requests \
     admitted beyond the limit, in the worst stretch of time. unused: requests that an ideal bucket, which all nodes reach \
     without delay, admits and this mode does not.";

pub(super) fn run(shape: &str, arguments: &Simulate, environment: &Environment) -> Result<ExitCode, Failure> {
    let chart = chart_of(arguments.chart)?;
    let report = compare_fleet(&scenario(shape, arguments)?).map_err(|error| failure(&error))?;
    print(&report, chart, text, arguments, environment)
}

fn chart_of(chosen: Option<Picture>) -> Result<fn(&FleetReport) -> Chart, Failure> {
    match chosen {
        None | Some(Picture::Admitted) => Ok(fleet_admitted),
        Some(Picture::Calls) => Ok(fleet_calls),
        Some(other) => Err(Failure::with_help(
            format_args!("`--chart {}` is not a chart of a fleet", chart_word(other)),
            "with --fleet there are admitted and calls",
        )),
    }
}

fn scenario(shape: &str, arguments: &Simulate) -> Result<FleetScenario, Failure> {
    let known = Shape::ALL.map(Shape::word);
    let shape = Shape::of(shape).ok_or_else(|| unknown("--fleet", shape, "shape of traffic", &known))?;
    let usual = FleetScenario::default();
    let known = FleetMode::ALL.map(FleetMode::word);
    let modes = chosen(("--mode", "mode"), arguments.mode.as_deref(), &known, FleetMode::of)?;
    let lease = arguments.lease.as_deref().filter(|text| *text != "auto");
    Ok(FleetScenario {
        bucket: bucket(arguments, usual.bucket)?,
        nodes: arguments.nodes.unwrap_or(usual.nodes),
        modes: modes.unwrap_or(usual.modes),
        lease: lease.map(|text| time("--lease", Some(text), Span::ZERO)).transpose()?,
        round_trip: time("--round-trip", arguments.round_trip.as_deref(), usual.round_trip)?,
        shape,
        load: arguments.load.unwrap_or(usual.load),
        duration: time("--duration", arguments.duration.as_deref(), usual.duration)?,
        seed: arguments.seed.unwrap_or(usual.seed),
        ..usual
    })
}

/// Returns the limit of the fleet.
fn bucket(arguments: &Simulate, usual: Bucket) -> Result<Bucket, Failure> {
    let rate = match &*arguments.rates {
        [] if arguments.burst.is_none() => return Ok(usual),
        [] => "1000/second",
        [rate] => rate,
        _ => {
            return Err(Failure::with_help(
                "a fleet shares one limit, and several rates are given",
                "compare one rate after the other",
            ));
        }
    };
    // Reports a mistake in the rate or the burst.
    Contestant::new(Choice::TokenBucket, rate, arguments.burst, "global").map_err(as_failure)?;
    let invalid = || Failure::new(format_args!("--rate: `{}` is not a limit", Printable(rate)));
    let parsed = RateText::parse(rate).map_err(|_| invalid())?;
    let bucket = Bucket::new(parsed.rate()).map_err(|_| invalid())?;
    match arguments.burst.or(parsed.burst) {
        Some(burst) => bucket.with_burst(burst).map_err(|_| invalid()),
        None => Ok(bucket),
    }
}

fn failure(error: &FleetError) -> Failure {
    match error {
        FleetError::Nodes => Failure::new(format_args!("--nodes: {error}")),
        FleetError::Limit | FleetError::NoLease { .. } => Failure::new(format_args!("--rate: {error}")),
        FleetError::Lease { .. } => Failure::new(format_args!("--lease: {error}")),
        FleetError::RoundTrip => Failure::new(format_args!("--round-trip: {error}")),
        FleetError::NoMode => Failure::new(format_args!("--mode: {error}")),
        FleetError::Retries => Failure::new(format_args!("--fleet: {error}")),
        _ => Failure::new(error),
    }
}

/// Renders the parameters, a chart, the table and its interpretation.
fn text(report: &FleetReport, chart: &str, width: usize) -> String {
    let mut out = format!(
        "\n{} on {} nodes, {} traffic at load {} for {}, seed {}\nleases of {} ms, a round trip of {} ms, sync every {} ms\n\n{chart}\n\n",
        report.limit,
        report.nodes,
        report.shape,
        report.load,
        seconds(report.duration_s),
        report.seed,
        report.lease_ms,
        report.round_trip_ms,
        report.sync_ms,
    );
    let columns = vec![
        column("admitted", |it| count(it.admitted)),
        column("calls", |it| count(it.calls)),
        column("calls/request", |it| format!("{:.4}", it.calls_per_decision)),
        column("waited", |it| percent(it.waited)),
        column("overshoot", |it| count(it.overshoot)),
        column("unused", |it| percent(it.underuse)),
    ];
    out.push_str(&table(&report.modes, |it| it.mode.word(), &columns));
    out.push('\n');
    for it in &report.modes {
        out.push_str(&folded(&format!("{:<6}  ", it.mode.word()), &it.words, width));
    }
    let _never = write!(out, "\n{}", folded("", LEGEND, width));
    out
}

fn column(heading: &str, of: impl Fn(&FleetModeReport) -> String + 'static) -> Column<'_, FleetModeReport> {
    (heading, Box::new(of))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
