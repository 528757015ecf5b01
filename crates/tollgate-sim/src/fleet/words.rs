//! The summary of a mode in words.

use super::report::FleetModeReport;
use crate::plot::number::{count, plural};

/// Describes the results of a mode.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number, for people")]
pub(super) fn describe(report: &FleetModeReport) -> String {
    let calls = match report.calls_per_decision {
        calls if calls <= 0.0 => "Never asked the store".to_owned(),
        calls if calls >= 1.0 => "Asked the store for each request".to_owned(),
        calls => format!("Asked the store once for {} requests", count((1.0 / calls).round() as u64)),
    };
    let bound = match report.overshoot {
        0 => "never admitted more than the limit".to_owned(),
        units => format!("admitted {} too many in the worst stretch", plural(units, "request", "requests")),
    };
    let use_ = match report.underuse {
        part if part < 0.000_5 => "left nothing unused".to_owned(),
        part => format!("left {:.1} % unused", part * 100.0),
    };
    format!("{calls}, {bound}, and {use_}.")
}
