//! Charts as SVG and for terminals.
//!
//! A [`Chart`] is laid out once (`frame`: scales, round numbers, positions). It is then drawn as a scene of shapes,
//! which becomes SVG, or on the cells of a terminal. Coordinates are always finite: values that are not numbers are
//! dropped, and values that are too large are drawn at the edge. Labels may come from outside: they are truncated and
//! can contain neither markup nor terminal escapes.
//!
//! Not here: the content of the charts (`replay`, `simulate`), the page around them (`page`), files.

pub(crate) mod cells;
mod draw;
mod frame;
pub(crate) mod ink;
mod moment;
pub mod number;
mod scale;
mod scene;
mod svg;
mod terminal;
#[cfg(test)]
pub(crate) mod tests;

/// A chart with two axes.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis; it starts at zero.
    pub y: Axis,
    /// Series, drawn in this order: later series cover earlier ones.
    pub series: Vec<Series>,
    /// Labeled horizontal lines, for example a limit.
    pub levels: Vec<(f64, String)>,
    /// Labeled vertical lines, for example the end of a window.
    pub moments: Vec<(f64, String)>,
}

/// An axis of a chart.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Number format.
    pub numbers: Numbers,
    /// Upper end of the axis; the largest value if `None`.
    pub to: Option<f64>,
}

/// Number format of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// Plain numbers: `1,200`, `0.5`.
    #[default]
    Plain,
    /// Fractions of one as percentages: `12 %`.
    Percent,
    /// Seconds since 1970, as a time of day or a date.
    Time,
    /// Plain numbers on a logarithmic scale.
    Logarithmic,
}

/// A line or a row of bars.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Drawing style.
    pub mark: Mark,
    /// Meaning of the series, which determines its color.
    pub role: Role,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Drawing style of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// A line from point to point.
    #[default]
    Line,
    /// A line that keeps its value until the next point.
    Steps,
    /// Bars from zero; each extends to the right, up to the position of the next one.
    Bars,
    /// Dots.
    Dots,
}

/// Meaning of a series. Each role has the same color in every chart; the colors can be told apart by people with
/// color vision deficiencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// All requests.
    #[default]
    Offered,
    /// Admitted requests.
    Admitted,
    /// Refused requests.
    Refused,
    /// One of several compared algorithms, by index.
    Contestant(u8),
}

/// A row of cells over time, darker where more requests were refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strip {
    /// Start of the first cell, in seconds since 1970.
    pub(crate) from: f64,
    /// Length of a cell, in seconds.
    pub(crate) step: f64,
    /// Requests and refusals of each cell.
    pub(crate) cells: Vec<(u64, u64)>,
}

/// Width of charts, in CSS pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;

impl Chart {
    /// Renders the chart as an SVG file with a transparent background that follows the color scheme of the reader.
    pub fn svg(&self) -> String {
        svg::alone(&draw::scene(self, (WIDTH, HEIGHT)))
    }

    /// Renders the chart as an SVG element for a page that contains the rules of [`ink::rules_within`].
    pub(crate) fn svg_within(&self, size: (f64, f64)) -> String {
        svg::within(&draw::scene(self, size))
    }

    /// Renders the chart for a terminal, at most `width` columns wide: colored Braille dots with `color`, else plain
    /// ASCII.
    pub fn terminal(&self, width: usize, color: bool) -> String {
        terminal::chart(self, width, color)
    }
}
