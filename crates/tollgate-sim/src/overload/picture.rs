//! The charts of a run: goodput, latency, and success of the most important class.
//!
//! Not here: drawing them (`plot`).

use super::protection::Protection;
use super::report::{OverloadReport, ProtectionReport};
use crate::plot::{Axis, Chart, Mark, Numbers, Role, Series};

/// Draws the calls that were answered in time, per protection, in front of those that an ideal protection would have
/// answered.
pub fn goodput(report: &OverloadReport) -> Chart {
    let per = 1.0 / report.step_s.max(1e-6);
    let possible = Series {
        name: "possible".to_owned(),
        mark: Mark::Bars,
        role: Role::Offered,
        points: points(report, report.possible.iter().map(|it| Some(*it))),
    };
    let lines = report.protections.iter().map(|it| {
        let good = it.series.good.iter().map(|good| Some(as_number(*good) * per));
        line(report, it, good)
    });
    Chart {
        title: format!("{}: calls answered within a second", title(report)),
        y: Axis { label: "calls a second".to_owned(), ..Axis::default() },
        series: [possible].into_iter().chain(lines).collect(),
        ..frame(report)
    }
}

/// Draws the 99th percentile of the latency of admitted calls, per protection.
pub fn latency(report: &OverloadReport) -> Chart {
    let lines = report.protections.iter().map(|it| {
        let latency = it.series.p99_ms.iter().map(|ms| (*ms > 0).then(|| as_number(*ms)));
        line(report, it, latency)
    });
    Chart {
        title: format!("{}: latency of admitted calls, 99th percentile", title(report)),
        y: Axis { label: "ms".to_owned(), numbers: Numbers::Logarithmic, to: None },
        series: lines.collect(),
        levels: vec![(as_number(report.timeout_ms), "callers give up".to_owned())],
        ..frame(report)
    }
}

/// Draws the share of calls of the most important class that succeeded, per protection.
pub fn critical(report: &OverloadReport) -> Chart {
    let lines = report.protections.iter().map(|it| line(report, it, it.series.critical.iter().copied()));
    Chart {
        title: format!("{}: critical calls that succeeded", title(report)),
        y: Axis { label: "share".to_owned(), numbers: Numbers::Percent, to: Some(1.0) },
        series: lines.collect(),
        ..frame(report)
    }
}

/// Returns a chart without series, with the times of the overload.
fn frame(report: &OverloadReport) -> Chart {
    let mut moments = Vec::new();
    for (number, &(from, until)) in report.overloads.iter().enumerate() {
        let words = if number == 0 { ["overload", "over"] } else { ["", ""] };
        moments.extend([(from, words[0].to_owned()), (until, words[1].to_owned())]);
    }
    let x = Axis { label: "seconds".to_owned(), ..Axis::default() };
    Chart { x, moments, ..Chart::default() }
}

fn title(report: &OverloadReport) -> String {
    let (workers, time, load) = (report.workers, report.service_time_ms, report.load);
    format!("{} at load {load}, {workers} × {time} ms", report.shape)
}

fn line(report: &OverloadReport, of: &ProtectionReport, values: impl Iterator<Item = Option<f64>>) -> Series {
    let place = Protection::ALL.iter().position(|it| *it == of.protection).unwrap_or(0);
    Series {
        name: of.protection.word().to_owned(),
        mark: Mark::Line,
        role: Role::Contestant(u8::try_from(place).unwrap_or(u8::MAX)),
        points: points(report, values),
    }
}

/// Returns a point at the start of each cell with a value.
fn points(report: &OverloadReport, values: impl Iterator<Item = Option<f64>>) -> Vec<(f64, f64)> {
    let starts = (0_u64..).map(|cell| as_number(cell) * report.step_s);
    starts.zip(values).filter_map(|(at, value)| Some((at, value?))).collect()
}

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
const fn as_number(count: u64) -> f64 {
    count as f64
}
