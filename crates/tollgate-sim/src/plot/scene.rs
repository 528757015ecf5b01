//! A picture as shapes at their places, in pixels of a screen: what SVG and PNG are both made from.

use super::ink::Ink;

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    /// What it shows, for who cannot see it.
    pub(super) words: String,
    /// The first one furthest behind.
    pub(super) shapes: Vec<Shape>,
}

/// One thing that is drawn.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A line through points.
    Line { points: Vec<Point>, ink: Ink, thick: f64, is_dashed: bool },
    /// Rectangles of one ink.
    Boxes { boxes: Vec<Area>, ink: Ink, opacity: f64 },
    /// Dots of one ink.
    Dots { dots: Vec<Dot>, ink: Ink },
    /// Words. `y` is the line they stand on.
    Words { at: Point, text: String, ink: Ink, anchor: Anchor, is_bold: bool },
}

/// From the left, and from the top.
pub(super) type Point = (f64, f64);

/// A rectangle.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) corner: Point,
    pub(super) size: Point,
    /// For who points at it.
    pub(super) hint: Option<String>,
}

/// A dot.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub(super) at: Point,
    /// For who points at it.
    pub(super) hint: Option<String>,
}

/// Which end of words is at their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How wide words are at the most, in the sizes that are drawn.
pub(super) fn width_of(text: &str, is_bold: bool) -> f64 {
    let columns = u32::try_from(crate::sanitize::columns(text)).unwrap_or(u32::MAX);
    f64::from(columns) * if is_bold { 7.6 } else { 6.3 }
}

/// A column beyond which words in the picture are cut: titles and names come from outside.
pub(super) const MAX_LABEL_COLUMNS: usize = 100;
