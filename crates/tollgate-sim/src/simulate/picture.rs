//! The charts of a round: units in the window, and arrivals.
//!
//! Not here: drawing them (`plot`).

use tollgate::Span;

use super::contestant::Choice;
use super::report::{AlgorithmReport, Round};
use crate::plot::{Axis, Chart, Mark, Role, Series};

/// The most window ends that are marked.
const MAX_BORDERS: f64 = 30.0;

/// Draws the most units that one key was granted in the window that ends at each time, per algorithm, with the limit
/// as a level. Values above the level were granted beyond the limit.
pub fn window(round: &Round) -> Chart {
    let time = Time::of(round);
    let whom = if shares(round) { "all clients together" } else { "the busiest client" };
    let each = |it: &AlgorithmReport| Series {
        name: it.algorithm.word().to_owned(),
        mark: Mark::Steps,
        role: contestant(it),
        points: points(&it.series.window, round.step_s, &time, 1.0),
    };
    Chart {
        title: format!("{}: let through in the last {}, to {whom}", title(round), span(round.window_s)),
        x: Axis { label: time.label(), ..Axis::default() },
        y: Axis { label: "requests".to_owned(), ..Axis::default() },
        series: round.algorithms.iter().map(each).collect(),
        levels: vec![(as_number(round.limit), format!("limit {}", round.rate))],
        moments: borders(round, &time),
    }
}

/// Draws offered and admitted requests over time, for all clients. If clients retry, the offered requests depend on
/// the algorithm and are drawn for each; else the admitted requests are.
pub fn arrivals(round: &Round) -> Chart {
    let time = Time::of(round);
    let comes_back = round.traffic.as_ref().is_some_and(|it| it.retry.is_some());
    let is_alone = comes_back && round.algorithms.len() == 1;
    let per = 1.0 / round.step_s.max(1e-6);
    let (per, unit) = if per > 0.2 { (per, "a second") } else { (per * 60.0, "a minute") };
    let offered = round.algorithms.first().filter(|_| !comes_back).map(|it| Series {
        name: "asked".to_owned(),
        mark: Mark::Bars,
        role: Role::Offered,
        points: points(&it.series.offered, round.step_s, &time, per),
    });
    let each = |it: &AlgorithmReport| {
        let values = if comes_back { &it.series.offered } else { &it.series.admitted };
        Series {
            name: it.algorithm.word().to_owned(),
            mark: if is_alone { Mark::Bars } else { Mark::Steps },
            role: contestant(it),
            points: points(values, round.step_s, &time, per),
        }
    };
    let what = if comes_back { "offered, with retries" } else { "let through" };
    Chart {
        title: format!("{}: {what}", title(round)),
        x: Axis { label: time.label(), ..Axis::default() },
        y: Axis { label: format!("requests {unit}"), ..Axis::default() },
        series: offered.into_iter().chain(round.algorithms.iter().map(each)).collect(),
        levels: Vec::new(),
        moments: borders(round, &time),
    }
}

/// Returns the role of an algorithm, which has the same color in every chart.
fn contestant(of: &AlgorithmReport) -> Role {
    let place = Choice::ALL.iter().position(|it| *it == of.algorithm).unwrap_or(0);
    Role::Contestant(u8::try_from(place).unwrap_or(u8::MAX))
}

fn shares(round: &Round) -> bool {
    round.traffic.as_ref().is_some_and(|it| it.by == crate::traffic::By::Everybody)
}

fn title(round: &Round) -> String {
    match &round.traffic {
        Some(traffic) => format!("{} at {}", traffic.shape, round.rate),
        None => format!("log at {}", round.rate),
    }
}

fn points(values: &[u64], step: f64, time: &Time, per: f64) -> Vec<(f64, f64)> {
    let at = |number: usize| as_number(number as u64) * step / time.unit;
    let mut points: Vec<_> =
        values.iter().enumerate().map(|(number, &it)| (at(number), as_number(it) * per)).collect();
    // A step keeps its value until the next point, so the last cell needs an end.
    if let Some(&last) = values.last() {
        points.push((at(values.len()), as_number(last) * per));
    }
    points
}

/// Returns the ends of windows that are aligned to the epoch, unless there are too many.
fn borders(round: &Round, time: &Time) -> Vec<(f64, String)> {
    let count = time.length / round.window_s.max(1e-6);
    if round.traffic.is_none() || count > MAX_BORDERS {
        return Vec::new();
    }
    let mut borders = Vec::new();
    let mut at = round.window_s;
    while at < time.length {
        let word = if borders.is_empty() { "window ends" } else { "" };
        borders.push((at / time.unit, word.to_owned()));
        at += round.window_s;
    }
    borders
}

/// Time since the start, in a unit that gives short numbers.
struct Time {
    length: f64,
    unit: f64,
    word: &'static str,
}

impl Time {
    fn of(round: &Round) -> Self {
        let cells = round.algorithms.iter().map(|it| it.series.offered.len()).max().unwrap_or(0);
        Self::over(cells, round.step_s)
    }

    fn over(cells: usize, step: f64) -> Self {
        let length = as_number(cells as u64) * step;
        let (unit, word) = match length {
            it if it <= 180.0 => (1.0, "seconds"),
            it if it <= 3.0 * 3600.0 => (60.0, "minutes"),
            it if it <= 72.0 * 3600.0 => (3600.0, "hours"),
            _ => (86_400.0, "days"),
        };
        Self { length, unit, word }
    }

    fn label(&self) -> String {
        self.word.to_owned()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
fn span(seconds: f64) -> String {
    Span::from_micros((seconds * 1e6).round() as u64).human_exact().to_string()
}

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
const fn as_number(count: u64) -> f64 {
    count as f64
}
