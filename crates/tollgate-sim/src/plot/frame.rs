//! Lays out a chart: both scales, and the position of every point. SVG and terminal charts are drawn from it.

use super::ink::Ink;
use super::scale::{Ends, Scale};
use super::{Chart, Mark, Series};
use crate::sanitize;

/// The layout of a chart.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) series: Vec<PlacedSeries>,
    /// Horizontal lines: position and label.
    pub(super) levels: Vec<(f64, String)>,
    /// Vertical lines from left to right: position and label.
    pub(super) moments: Vec<(f64, String)>,
}

/// The layout of a series.
#[derive(Clone, Debug)]
pub(super) struct PlacedSeries {
    pub(super) name: String,
    pub(super) mark: Mark,
    pub(super) ink: Ink,
    pub(super) points: Vec<PlacedPoint>,
}

/// The position of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedPoint {
    /// From 0 (left) to 1.
    pub(super) x: f64,
    /// Right end of the bar.
    pub(super) until: f64,
    /// From 0 (bottom) to 1.
    pub(super) y: f64,
    /// The value at this position.
    pub(super) value: (f64, f64),
}

impl Frame {
    /// Lays out a chart with at most this many numbers on each axis.
    pub(super) fn new(chart: &Chart, most_across: usize, most_up: usize) -> Self {
        let bars: Vec<_> = chart.series.iter().map(bar).collect();
        let ends = chart.series.iter().zip(&bars).flat_map(|(series, bar)| {
            series.points.iter().flat_map(move |(x, _)| [*x, x + bar]).filter(|it| it.is_finite())
        });
        let x = Scale::new(&chart.x, ends, Ends::Tight, most_across);
        let values = chart.series.iter().flat_map(|it| it.points.iter().map(|(_, y)| *y));
        let y =
            Scale::new(&chart.y, values.chain(chart.levels.iter().map(|it| it.0)), Ends::FromZero, most_up);
        let series = chart
            .series
            .iter()
            .zip(bars)
            .map(|(series, bar)| PlacedSeries {
                name: sanitize::shown(&series.name, 40),
                mark: series.mark,
                ink: Ink::Role(series.role),
                points: placed(series, bar, &x, &y),
            })
            .collect();
        let levels = chart
            .levels
            .iter()
            .filter_map(|(at, word)| Some((y.place(*at)?, sanitize::shown(word, 40))))
            .collect();
        let mut moments: Vec<_> = chart
            .moments
            .iter()
            .filter(|(at, _)| x.holds(*at))
            .filter_map(|(at, word)| Some((x.place(*at)?, sanitize::shown(word, 40))))
            .collect();
        moments.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { x, y, series, levels, moments }
    }

    /// Returns a text description of the chart.
    pub(super) fn words(&self, title: &str) -> String {
        let mut words = sanitize::shown(title, super::scene::MAX_LABEL_COLUMNS);
        for series in self.series.iter().filter(|it| !it.name.is_empty()) {
            let most = series.points.iter().map(|it| it.value.1).fold(0.0, f64::max);
            if !words.is_empty() {
                words.push_str("; ");
            }
            words.push_str(&series.name);
            words.push_str(": at most ");
            words.push_str(&self.y.read(most));
        }
        words
    }
}

/// Returns the width of bars: the smallest distance between two of them.
fn bar(series: &Series) -> f64 {
    if series.mark != Mark::Bars {
        return 0.0;
    }
    let mut places: Vec<_> = series.points.iter().map(|it| it.0).filter(|it| it.is_finite()).collect();
    places.sort_by(f64::total_cmp);
    let least =
        places.windows(2).map(|it| it[1] - it[0]).filter(|it| *it > 0.0).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { 1.0 }
}

fn placed(series: &Series, bar: f64, x: &Scale, y: &Scale) -> Vec<PlacedPoint> {
    let place = |&(at, value): &(f64, f64)| {
        Some(PlacedPoint {
            x: x.place(at).filter(|_| x.holds(at))?,
            until: x.place(at + bar)?,
            y: y.place(value)?,
            value: (at, value),
        })
    };
    series.points.iter().filter_map(place).collect()
}
