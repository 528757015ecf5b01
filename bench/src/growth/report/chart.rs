//! The chart of a run: cost relative to the smallest size, over the size.

use tollgate_sim::plot::{Axis, Chart, Mark, Numbers, Role, Series};

use super::Row;
use crate::growth::ALL;

/// Returns the chart as SVG.
#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub fn chart(rows: &[Row]) -> String {
    let series = ALL.iter().filter_map(|case| {
        let points: Vec<_> =
            rows.iter().filter(|row| row.case == case.name).map(|row| (row.size as f64, row.ratio)).collect();
        (!points.is_empty()).then(|| (case.title.to_owned(), points))
    });
    let series = series.zip(0..).map(|((name, points), index)| Series {
        name,
        mark: Mark::Line,
        role: Role::Contestant(index),
        points,
    });
    let chart = Chart {
        title: "Cost of a decision, relative to the smallest size".to_owned(),
        x: Axis { label: "keys, limits or connections".to_owned(), numbers: Numbers::Logarithmic, to: None },
        y: Axis { label: "cost".to_owned(), numbers: Numbers::Plain, to: None },
        series: series.collect(),
        levels: vec![(1.0, "flat".to_owned())],
        moments: Vec::new(),
    };
    chart.svg()
}
