//! A grid of terminal cells: two by four Braille dots per cell, or one ASCII character.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "places are from 0 to 1, and a terminal has a few hundred columns"
)]

use super::super::Mark;
use super::super::ink::Ink;

const MARKERS: [&str; 8] = ["*", "+", "o", "x", "#", "@", "%", "&"];

/// Bits of the dots of a Braille cell: two columns of four.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

#[derive(Clone, Copy, Debug)]
enum Cell {
    Empty,
    /// A bit for each dot.
    Dots(u8, Ink),
    Sign(&'static str, Ink),
}

/// A grid of cells.
#[derive(Debug)]
pub(super) struct Canvas {
    wide: usize,
    high: usize,
    is_fine: bool,
    cells: Vec<Cell>,
    ink: Ink,
    sign: &'static str,
}

impl Canvas {
    /// Creates a grid of this size; `is_fine` selects Braille.
    pub(super) fn new(wide: usize, high: usize, is_fine: bool) -> Self {
        Self { wide, high, is_fine, cells: vec![Cell::Empty; wide * high], ink: Ink::Text, sign: MARKERS[0] }
    }

    /// Selects the color and the series of the following shapes.
    pub(super) fn take(&mut self, ink: Ink, series: usize) {
        (self.ink, self.sign) = (ink, MARKERS[series % MARKERS.len()]);
    }

    /// Returns the sample of a series for the legend.
    pub(super) fn sample(&self, series: usize, mark: Mark) -> &'static str {
        match (self.is_fine, mark) {
            (false, _) => MARKERS[series % MARKERS.len()],
            (true, Mark::Bars) => "█",
            (true, Mark::Dots) => "•",
            (true, Mark::Line | Mark::Steps) => "━━",
        }
    }

    pub(super) const fn level_sample(&self) -> &'static str {
        if self.is_fine { "┄┄" } else { "--" }
    }

    pub(super) const fn moment_sample(&self) -> &'static str {
        if self.is_fine { "┊" } else { "!" }
    }

    fn dots(&self) -> (usize, usize) {
        if self.is_fine { (self.wide * 2, self.high * 4) } else { (self.wide, self.high) }
    }

    /// Returns the dot of a position, from the left and from the top.
    fn dot(&self, (x, y): (f64, f64)) -> (i64, i64) {
        let (wide, high) = self.dots();
        let column = (x * wide.saturating_sub(1) as f64).round() as i64;
        (column, ((1.0 - y) * high.saturating_sub(1) as f64).round() as i64)
    }

    /// Returns the row of a position.
    pub(super) fn row(&self, y: f64) -> usize {
        let row = self.dot((0.0, y)).1;
        usize::try_from(if self.is_fine { row / 4 } else { row }).unwrap_or(0)
    }

    fn set(&mut self, (x, y): (i64, i64)) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        let (wide, high) = self.dots();
        if x >= wide || y >= high {
            return;
        }
        let (ink, sign) = (self.ink, self.sign);
        if !self.is_fine {
            self.cells[y * self.wide + x] = Cell::Sign(sign, ink);
            return;
        }
        let bit = DOTS[x % 2][y % 4];
        let cell = &mut self.cells[(y / 4) * self.wide + x / 2];
        // A cell has one color: the last one drawn, with the dots of that color only.
        *cell = match *cell {
            Cell::Dots(dots, before) if before == ink => Cell::Dots(dots | bit, ink),
            _ => Cell::Dots(bit, ink),
        };
    }

    /// Draws a line.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let (from, to) = (self.dot(from), self.dot(to));
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs());
        for step in 0..=steps {
            let part = |from: i64, to: i64| {
                from + ((to - from) as f64 * step as f64 / steps.max(1) as f64).round() as i64
            };
            self.set((part(from.0, to.0), part(from.1, to.1)));
        }
    }

    /// Draws a bar from the bottom. A bar of height zero is not drawn.
    pub(super) fn bar(&mut self, from: f64, until: f64, high: f64) {
        if high <= 0.0 {
            return;
        }
        let edge = |x: f64| (x * self.dots().0 as f64).round() as i64;
        let (left, right, top) = (edge(from), edge(until), self.dot((from, high)).1);
        let bottom = self.dot((from, 0.0)).1;
        for x in left..right.max(left + 1) {
            for y in top..=bottom {
                self.set((x, y));
            }
        }
    }

    /// Draws a dashed horizontal line over other shapes.
    pub(super) fn across(&mut self, y: f64) {
        let (row, sign) = (self.row(y), if self.is_fine { "┄" } else { "-" });
        for cell in self.cells.iter_mut().skip(row * self.wide).take(self.wide) {
            *cell = Cell::Sign(sign, Ink::Mark);
        }
    }

    /// Draws a dashed vertical line where cells are empty.
    pub(super) fn upright(&mut self, x: f64) {
        let column = self.dot((x, 0.0)).0 / if self.is_fine { 2 } else { 1 };
        let sign = self.moment_sample();
        for row in 0..self.high {
            let index = row * self.wide + usize::try_from(column).unwrap_or(0);
            if let Some(cell @ Cell::Empty) = self.cells.get_mut(index) {
                *cell = Cell::Sign(sign, Ink::Mark);
            }
        }
    }

    /// Writes a row, in runs of one color.
    pub(super) fn write(&self, row: usize, mut out: impl FnMut(Ink, &str)) {
        let mut text = String::new();
        let mut last = Ink::Soft;
        let cells = self.cells.get(row * self.wide..(row + 1) * self.wide).unwrap_or_default();
        for cell in cells {
            let (ink, char) = match *cell {
                Cell::Empty => (last, ' '),
                Cell::Dots(dots, ink) => (ink, char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ')),
                Cell::Sign(sign, ink) => (ink, sign.chars().next().unwrap_or(' ')),
            };
            if ink != last && !text.is_empty() {
                out(last, &text);
                text.clear();
            }
            last = ink;
            text.push(char);
        }
        out(last, text.trim_end());
    }
}
