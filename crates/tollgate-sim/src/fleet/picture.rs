//! The charts of a comparison: admitted requests, and calls to the store.
//!
//! Not here: drawing them (`plot`).

use super::mode::FleetMode;
use super::report::{FleetModeReport, FleetReport};
use crate::plot::{Axis, Chart, Mark, Numbers, Role, Series};

/// Draws the admitted requests per mode, in front of those that an ideal bucket admits.
pub fn fleet_admitted(report: &FleetReport) -> Chart {
    let ideal = Series {
        name: "ideal".to_owned(),
        mark: Mark::Bars,
        role: Role::Offered,
        points: points(report, &report.ideal_series),
    };
    let lines = report.modes.iter().map(|it| line(report, it, &it.series.admitted));
    Chart {
        title: format!("{}: admitted", title(report)),
        y: Axis { label: "requests a second".to_owned(), ..Axis::default() },
        series: [ideal].into_iter().chain(lines).collect(),
        ..frame()
    }
}

/// Draws the calls to the store per mode.
pub fn fleet_calls(report: &FleetReport) -> Chart {
    let calling = report.modes.iter().filter(|it| it.calls > 0);
    Chart {
        title: format!("{}: calls to the store", title(report)),
        y: Axis { label: "calls a second".to_owned(), numbers: Numbers::Logarithmic, to: None },
        series: calling.map(|it| line(report, it, &it.series.calls)).collect(),
        ..frame()
    }
}

fn frame() -> Chart {
    Chart { x: Axis { label: "seconds".to_owned(), ..Axis::default() }, ..Chart::default() }
}

fn title(report: &FleetReport) -> String {
    format!("{} at load {}, {} nodes, {}", report.shape, report.load, report.nodes, report.limit)
}

fn line(report: &FleetReport, of: &FleetModeReport, values: &[u64]) -> Series {
    let place = FleetMode::ALL.iter().position(|it| *it == of.mode).unwrap_or(0);
    Series {
        name: of.mode.word().to_owned(),
        mark: Mark::Line,
        role: Role::Contestant(u8::try_from(place).unwrap_or(u8::MAX)),
        points: points(report, values),
    }
}

/// Returns a point at the start of each cell, with the number per second.
#[allow(clippy::cast_precision_loss, reason = "for a picture")]
fn points(report: &FleetReport, values: &[u64]) -> Vec<(f64, f64)> {
    let point = |(cell, value): (usize, &u64)| (cell as f64 * report.step_s, *value as f64 / report.step_s);
    values.iter().enumerate().map(point).collect()
}
