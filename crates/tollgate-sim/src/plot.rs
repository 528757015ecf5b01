//! Pictures: what is drawn, and on what.
//!
//! A [`Chart`] is measured once (`frame`: scales, round numbers, places), and drawn from that: as a scene of shapes, which becomes SVG or
//! PNG, or on the cells of a terminal. Every picture is finite whatever the numbers are: what is no number is left out, what is too
//! large stands at the edge. Words may come from outside: they are cut, and neither markup nor able to move a cursor.
//!
//! Not here: what the pictures are about (`replay`, `simulate`), the page around them (`page`), files.

pub(crate) mod cells;
mod draw;
mod frame;
pub(crate) mod ink;
mod moment;
pub mod number;
mod png;
mod scale;
mod scene;
mod svg;
mod terminal;
#[cfg(test)]
pub(crate) mod tests;

/// A diagram with two axes.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// What runs from left to right.
    pub x: Axis,
    /// What runs from bottom to top, from zero.
    pub y: Axis,
    /// What is drawn, the first one furthest behind.
    pub series: Vec<Series>,
    /// Horizontal lines across, with a word to each: a limit, say.
    pub levels: Vec<(f64, String)>,
    /// Vertical lines, with a word to each: where a window ends, say.
    pub moments: Vec<(f64, String)>,
}

/// What an axis says.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// How its numbers are written.
    pub numbers: Numbers,
    /// Where it ends, if not at the largest value.
    pub to: Option<f64>,
}

/// How the numbers of an axis are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// `1,200`, `0.5`.
    #[default]
    Plain,
    /// A share of one, as `12 %`.
    Percent,
    /// Seconds since 1970, as a time of day or a date.
    Time,
    /// Powers of ten apart.
    Logarithmic,
}

/// One line, or row of bars.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What it is called in the legend.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// What it stands for, which is what gives it its colour.
    pub role: Role,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// A line from point to point.
    #[default]
    Line,
    /// A line that stays until the next point.
    Steps,
    /// Bars from zero, each from its place as far to the right as the next one stands away.
    Bars,
    /// Dots.
    Dots,
}

/// What a series stands for. Each has one colour, the same in every picture, that can be told from the others by people who see fewer colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Everything that was asked.
    #[default]
    Offered,
    /// What was let through.
    Admitted,
    /// What was not.
    Refused,
    /// One of several that are compared, by number.
    Contestant(u8),
}

/// A row of cells, darker where more was refused: when it happened.
#[derive(Clone, Debug, Default)]
pub struct Strip {
    /// Before it.
    pub label: String,
    /// The start of the first cell, in seconds since 1970, and how long each is.
    pub from: f64,
    /// Seconds.
    pub step: f64,
    /// What was asked and what refused, a cell each.
    pub cells: Vec<(u64, u64)>,
}

/// How wide pictures are, in pixels of a screen.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;

impl Chart {
    /// As SVG, for documents and browsers: without a background, dark where the reader's screen is.
    pub fn svg(&self) -> String {
        svg::alone(&draw::scene(self, (WIDTH, HEIGHT)))
    }

    /// As part of a page that has the rules of [`ink::rules_within`].
    pub(crate) fn svg_within(&self, size: (f64, f64)) -> String {
        svg::within(&draw::scene(self, size))
    }

    /// As PNG, on white, twice as fine as the screen it is laid out for.
    pub fn png(&self) -> Vec<u8> {
        png::picture(&draw::scene(self, (WIDTH, HEIGHT)))
    }

    /// For a terminal, at most `width` columns wide. With `colour` dots of Braille in colours, without plain ASCII.
    pub fn terminal(&self, width: usize, colour: bool) -> String {
        terminal::chart(self, width, colour)
    }
}

impl Strip {
    /// As SVG, for documents and browsers: without a background, dark where the reader's screen is.
    pub fn svg(&self) -> String {
        svg::alone(&self.scene(WIDTH))
    }

    /// As PNG, on white, twice as fine as the screen it is laid out for.
    pub fn png(&self) -> Vec<u8> {
        png::picture(&self.scene(WIDTH))
    }

    /// For a terminal: its label if it has one, a line of cells and one of times, at most `width` columns wide. With `colour` blocks in
    /// red, without plain ASCII.
    pub fn terminal(&self, width: usize, colour: bool) -> String {
        terminal::strip(self, width, colour)
    }
}
