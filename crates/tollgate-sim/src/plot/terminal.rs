//! Draws charts for terminals: colored Braille dots, or plain ASCII without color (a pipe, a file,
//! `NO_COLOR`).
//!
//! Invariant: a line takes at most the given number of columns. Tested by `tests::drawn`.

mod canvas;

use std::fmt::Write as _;

use canvas::Canvas;

use super::frame::{Frame, PlacedSeries};
use super::ink::Ink;
use super::scale::Scale;
use super::{Chart, Mark};
use crate::sanitize::{columns, shown};

const HEIGHT: usize = 12;
/// The least columns: numbers beside the chart need them.
const MIN_WIDTH: usize = 24;
/// The most columns, which bounds memory.
const MAX_WIDTH: usize = 400;

/// Draws a chart.
pub(super) fn chart(chart: &Chart, width: usize, color: bool) -> String {
    let width = width.min(MAX_WIDTH);
    let frame = Frame::new(chart, width / 12, HEIGHT / 3);
    let numbers = frame.y.ticks.iter().map(|it| columns(&it.text)).max().unwrap_or(0);
    let gutter = if width < MIN_WIDTH || numbers + 12 > width { 0 } else { numbers + 2 };
    let mut canvas = Canvas::new(width - gutter, HEIGHT, color);
    for (place, _) in &frame.moments {
        canvas.upright(*place);
    }
    let (bars, lines): (Vec<_>, Vec<_>) =
        frame.series.iter().enumerate().partition(|it| it.1.mark == Mark::Bars);
    for (index, series) in bars {
        draw(series, index, &mut canvas);
    }
    for (place, _) in &frame.levels {
        canvas.across(*place);
    }
    for (index, series) in lines {
        draw(series, index, &mut canvas);
    }
    let mut out = Page { width, color, text: String::new() };
    out.line(&[(Ink::Text, &shown(&chart.title, width))]);
    out.legend(&frame, &canvas);
    if gutter > 0 {
        out.line(&[(Ink::Soft, &shown(&chart.y.label, width))]);
    }
    for row in 0..HEIGHT {
        if gutter > 0 {
            let tick = frame.y.ticks.iter().find(|it| canvas.row(it.place) == row);
            let number = tick.map_or("", |it| it.text.as_str());
            let pad = " ".repeat((gutter - 2).saturating_sub(columns(number)));
            let edge = if color { "┤│" } else { "+|" };
            let edge = edge.chars().nth(usize::from(tick.is_none())).unwrap_or('|');
            out.ink(Ink::Soft, &format!("{pad}{number} {edge}"));
        }
        canvas.write(row, |ink, text| out.ink(ink, text));
        out.end();
    }
    out.ticks(&frame.x, gutter);
    let label = shown(&chart.x.label, width);
    if !label.is_empty() {
        let pad = " ".repeat(width.saturating_sub(columns(&label)));
        out.line(&[(Ink::Soft, &format!("{pad}{label}"))]);
    }
    out.text
}

fn draw(series: &PlacedSeries, index: usize, canvas: &mut Canvas) {
    let mut before: Option<(f64, f64)> = None;
    canvas.take(series.ink, index);
    for point in &series.points {
        let at = (point.x, point.y);
        match (series.mark, before) {
            (Mark::Bars, _) => canvas.bar(point.x, point.until, point.y),
            (Mark::Dots, _) | (Mark::Line, None) => canvas.line(at, at),
            (Mark::Line, Some(before)) => canvas.line(before, at),
            (Mark::Steps, None) => {}
            (Mark::Steps, Some((x, y))) => {
                canvas.line((x, y), (at.0, y));
                canvas.line((at.0, y), at);
            }
        }
        before = Some(at);
    }
    if let (Mark::Steps, Some((x, y))) = (series.mark, before) {
        canvas.line((x, y), (1.0, y));
    }
}

/// The lines of the output.
struct Page {
    width: usize,
    color: bool,
    text: String,
}

impl Page {
    fn ink(&mut self, ink: Ink, text: &str) {
        if self.color && ink != Ink::Text && !text.trim().is_empty() {
            let _ = write!(self.text, "\x1b[38;5;{}m{text}\x1b[0m", ink.terminal());
        } else {
            self.text.push_str(text);
        }
    }

    fn end(&mut self) {
        let length = self.text.trim_end_matches(' ').len();
        self.text.truncate(length);
        self.text.push('\n');
    }

    /// Adds a line, unless it is empty.
    fn line(&mut self, parts: &[(Ink, &str)]) {
        let mut room = self.width;
        let mut any = false;
        for (ink, text) in parts {
            let wide = columns(text);
            if wide <= room && wide > 0 {
                self.ink(*ink, text);
                room -= wide;
                any = true;
            }
        }
        if any {
            self.end();
        }
    }

    /// Adds the legend, in as many lines as needed.
    fn legend(&mut self, frame: &Frame, canvas: &Canvas) {
        let series = frame.series.iter().enumerate().filter(|it| !it.1.name.is_empty());
        let mut entries: Vec<_> =
            series.map(|(index, it)| (it.ink, canvas.sample(index, it.mark), it.name.clone())).collect();
        for (lines, sample) in
            [(&frame.levels, canvas.level_sample()), (&frame.moments, canvas.moment_sample())]
        {
            for (_, word) in lines {
                if !word.is_empty() && !entries.iter().any(|it| it.2 == *word) {
                    entries.push((Ink::Mark, sample, word.clone()));
                }
            }
        }
        let mut taken = 0;
        for (ink, sample, name) in entries.into_iter().take(24) {
            let entry = columns(sample) + 1 + columns(&name);
            if entry > self.width {
                continue;
            }
            if taken > 0 && taken + 3 + entry > self.width {
                self.end();
                taken = 0;
            }
            if taken > 0 {
                self.text.push_str("   ");
                taken += 3;
            }
            self.ink(ink, sample);
            self.text.push(' ');
            self.text.push_str(&name);
            taken += entry;
        }
        if taken > 0 {
            self.end();
        }
    }

    /// Adds the numbers of the horizontal axis, each centered at its position, as far as they fit.
    fn ticks(&mut self, scale: &Scale, gutter: usize) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "columns"
        )]
        let column =
            |place: f64| gutter + (place * (self.width - gutter).saturating_sub(1) as f64).round() as usize;
        let mut line = String::new();
        let mut taken = 0;
        for tick in &scale.ticks {
            let wide = columns(&tick.text);
            let start = column(tick.place).saturating_sub(wide / 2).min(self.width.saturating_sub(wide));
            if (taken == 0 || start > taken) && start + wide <= self.width {
                line.push_str(&" ".repeat(start - taken));
                line.push_str(&tick.text);
                taken = start + wide;
            }
        }
        self.line(&[(Ink::Soft, &line)]);
    }
}
