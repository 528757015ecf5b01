//! Draws a chart as a scene: positions of text, axes, lines and bars.

use super::frame::{Frame, PlacedPoint, PlacedSeries};
use super::ink::Ink;
use super::scene::{Anchor, Area, Dot, MAX_LABEL_COLUMNS, Point, Scene, Shape, width_of};
use super::{Chart, Mark};
use crate::sanitize;

/// The most shapes with tooltips. More shapes are too small to point at.
const MAX_HINTS: usize = 240;
const ROW_HEIGHT: f64 = 17.0;

/// The rectangle in which values are drawn.
#[derive(Clone, Copy)]
struct Room {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Room {
    fn across(self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    fn up(self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }
}

/// Draws the chart in this size.
pub(super) fn scene(chart: &Chart, (width, height): Point) -> Scene {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a picture is a few hundred wide"
    )]
    let (across, up) = ((width / 65.0) as usize, (height / 44.0) as usize);
    let frame = Frame::new(chart, across, up);
    let mut shapes = Vec::new();
    let mut top = 0.0;
    if !chart.title.is_empty() {
        shapes.push(words(
            (0.0, 13.0),
            &sanitize::shown(&chart.title, MAX_LABEL_COLUMNS),
            Ink::Text,
            Anchor::Start,
            true,
        ));
        top += 24.0;
    }
    top = legend(&frame, top, width, &mut shapes);
    if chart.y.label.is_empty() {
        top += 8.0;
    } else {
        let label = sanitize::shown(&chart.y.label, MAX_LABEL_COLUMNS);
        shapes.push(words((0.0, top + 11.0), &label, Ink::Soft, Anchor::Start, false));
        top += ROW_HEIGHT + 3.0;
    }
    let numbers = frame.y.ticks.iter().map(|it| width_of(&it.text, false)).fold(0.0, f64::max);
    let below = if chart.x.label.is_empty() { 20.0 } else { 20.0 + ROW_HEIGHT };
    if frame.moments.iter().any(|it| !it.1.is_empty()) {
        top += ROW_HEIGHT;
    }
    let beside = frame.levels.iter().map(|it| width_of(&it.1, false)).fold(4.0, f64::max).min(width / 3.0);
    let room = Room { left: numbers + 8.0, right: width - beside - 6.0, top, bottom: height - below };
    axes(&frame, room, width, &mut shapes);
    if !chart.x.label.is_empty() {
        let label = sanitize::shown(&chart.x.label, MAX_LABEL_COLUMNS);
        shapes.push(words((room.right, height - 4.0), &label, Ink::Soft, Anchor::End, false));
    }
    moments(&frame, room, &mut shapes);
    for series in &frame.series {
        draw(series, &frame, room, &mut shapes);
    }
    levels(&frame, room, &mut shapes);
    Scene { width, height, words: frame.words(&chart.title), shapes }
}

fn words(at: Point, text: &str, ink: Ink, anchor: Anchor, is_bold: bool) -> Shape {
    Shape::Words { at, text: text.to_owned(), ink, anchor, is_bold }
}

fn line(points: Vec<Point>, ink: Ink) -> Shape {
    Shape::Line { points, ink, thick: 1.0, is_dashed: ink == Ink::Mark }
}

/// Draws the legend in as many rows as needed. Returns its bottom.
fn legend(frame: &Frame, top: f64, width: f64, shapes: &mut Vec<Shape>) -> f64 {
    let named: Vec<_> = frame.series.iter().filter(|it| !it.name.is_empty()).collect();
    let (mut x, mut y) = (0.0, top);
    for series in &named {
        let wide = 22.0 + width_of(&series.name, false) + 14.0;
        if x > 0.0 && x + wide > width {
            (x, y) = (0.0, y + ROW_HEIGHT);
        }
        shapes.push(match series.mark {
            Mark::Line | Mark::Steps => Shape::Line {
                points: vec![(x, y + 7.0), (x + 17.0, y + 7.0)],
                ink: series.ink,
                thick: 2.0,
                is_dashed: true,
            },
            Mark::Bars => {
                let sample = Area { corner: (x + 6.0, y + 2.0), size: (10.0, 10.0), hint: None };
                Shape::Boxes { boxes: vec![sample], ink: series.ink }
            }
            Mark::Dots => {
                Shape::Dots { dots: vec![Dot { at: (x + 11.0, y + 7.0), hint: None }], ink: series.ink }
            }
        });
        shapes.push(words((x + 22.0, y + 11.0), &series.name, Ink::Soft, Anchor::Start, false));
        x += wide;
    }
    if named.is_empty() { top } else { y + ROW_HEIGHT + 5.0 }
}

fn axes(frame: &Frame, room: Room, width: f64, shapes: &mut Vec<Shape>) {
    for tick in &frame.y.ticks {
        let y = room.up(tick.place);
        shapes.push(line(vec![(room.left, y), (room.right, y)], Ink::Grid));
        shapes.push(words((room.left - 6.0, y + 4.0), &tick.text, Ink::Soft, Anchor::End, false));
    }
    let base = vec![(room.left, room.bottom), (room.right, room.bottom)];
    shapes.push(line(base, Ink::Soft));
    let mut taken = f64::NEG_INFINITY;
    for tick in &frame.x.ticks {
        let x = room.across(tick.place);
        let half = width_of(&tick.text, false) / 2.0;
        let middle = x.clamp(half, (width - half).max(half));
        shapes.push(line(vec![(x, room.bottom), (x, room.bottom + 4.0)], Ink::Soft));
        if middle - half > taken {
            shapes.push(words((middle, room.bottom + 16.0), &tick.text, Ink::Soft, Anchor::Middle, false));
            taken = middle + half + 4.0;
        }
    }
}

/// Draws the vertical lines. A label is dropped if it does not fit or repeats the one before.
fn moments(frame: &Frame, room: Room, shapes: &mut Vec<Shape>) {
    let mut taken = f64::NEG_INFINITY;
    let mut last = "";
    for (place, word) in &frame.moments {
        let x = room.across(*place);
        shapes.push(line(vec![(x, room.top), (x, room.bottom)], Ink::Mark));
        let wide = width_of(word, false);
        let (at, start, anchor) =
            if x + wide <= room.right { (x, x, Anchor::Start) } else { (x, x - wide, Anchor::End) };
        if start > taken && word != last {
            shapes.push(words((at, room.top - 6.0), word, Ink::Mark, anchor, false));
            taken = start + wide;
            last = word;
        }
    }
}

fn levels(frame: &Frame, room: Room, shapes: &mut Vec<Shape>) {
    for (place, word) in &frame.levels {
        let y = room.up(*place);
        shapes.push(line(vec![(room.left, y), (room.right, y)], Ink::Mark));
        shapes.push(words((room.right + 5.0, y + 4.0), word, Ink::Mark, Anchor::Start, false));
    }
}

fn draw(series: &PlacedSeries, frame: &Frame, room: Room, shapes: &mut Vec<Shape>) {
    let at = |point: &PlacedPoint| (room.across(point.x), room.up(point.y));
    let hint = |point: &PlacedPoint| {
        let (x, y) = point.value;
        (series.points.len() <= MAX_HINTS).then(|| format!("{}: {}", frame.x.read(x), frame.y.read(y)))
    };
    match series.mark {
        Mark::Line => {
            let points = thinned(series.points.iter().map(at));
            if points.len() == 1 {
                let dots = points.into_iter().map(|at| Dot { at, hint: None }).collect();
                shapes.push(Shape::Dots { dots, ink: series.ink });
            } else {
                shapes.push(Shape::Line { points, ink: series.ink, thick: 2.0, is_dashed: true });
            }
        }
        Mark::Steps => {
            let mut points: Vec<Point> = Vec::new();
            for (x, y) in thinned(series.points.iter().map(at)) {
                if let Some((_, before)) = points.last().copied()
                    && (before - y).abs() > 1e-9
                {
                    points.push((x, before));
                }
                points.push((x, y));
            }
            if let Some((_, y)) = points.last().copied() {
                points.push((room.right, y));
            }
            shapes.push(Shape::Line { points, ink: series.ink, thick: 2.0, is_dashed: true });
        }
        Mark::Bars => {
            let area = |point: &PlacedPoint| {
                let (from, until) = (room.across(point.x), room.across(point.until));
                let gap = ((until - from) * 0.15).min(1.0);
                let (corner, size) = ((from, room.up(point.y)), ((until - from - gap).max(0.5), 0.0));
                Area { corner, size: (size.0, room.bottom - corner.1), hint: hint(point) }
            };
            let boxes = series.points.iter().filter(|it| it.y > 0.0).map(area).collect();
            shapes.push(Shape::Boxes { boxes, ink: series.ink });
        }
        Mark::Dots => {
            let dots = series.points.iter().map(|it| Dot { at: at(it), hint: hint(it) }).collect();
            shapes.push(Shape::Dots { dots, ink: series.ink });
        }
    }
}

/// Reduces the points of each pixel column to the first, last, highest and lowest, which gives the same picture.
fn thinned(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    let mut column: Vec<Point> = Vec::new();
    let mut close = |column: &mut Vec<Point>| {
        if column.len() > 4 {
            let extreme = |sign: f64| {
                let order =
                    |a: &(usize, &Point), b: &(usize, &Point)| (a.1.1 * sign).total_cmp(&(b.1.1 * sign));
                column.iter().enumerate().max_by(order).map_or(0, |it| it.0)
            };
            let mut chosen = [0, extreme(1.0), extreme(-1.0), column.len() - 1];
            chosen.sort_unstable();
            let mut before = None;
            for index in chosen.into_iter().filter(|it| before.replace(*it) != Some(*it)) {
                kept.push(column[index]);
            }
        } else {
            kept.extend_from_slice(column);
        }
        column.clear();
    };
    for point in points {
        if column.first().is_some_and(|first| (first.0 * 2.0).floor() < (point.0 * 2.0).floor()) {
            close(&mut column);
        }
        column.push(point);
    }
    close(&mut column);
    kept
}
