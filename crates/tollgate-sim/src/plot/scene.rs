//! A chart as positioned shapes, in CSS pixels: the input of the SVG writer.

use super::ink::Ink;

/// A drawing.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Text description for screen readers.
    pub(super) words: String,
    /// Shapes in drawing order: later shapes cover earlier ones.
    pub(super) shapes: Vec<Shape>,
}

/// A shape.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A line through points.
    Line { points: Vec<Point>, ink: Ink, thick: f64, is_dashed: bool },
    /// Rectangles of one color.
    Boxes { boxes: Vec<Area>, ink: Ink },
    /// Dots of one color.
    Dots { dots: Vec<Dot>, ink: Ink },
    /// A text. `y` is its baseline.
    Words { at: Point, text: String, ink: Ink, anchor: Anchor, is_bold: bool },
}

/// Distances from the left and from the top.
pub(super) type Point = (f64, f64);

/// A rectangle.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) corner: Point,
    pub(super) size: Point,
    /// Tooltip.
    pub(super) hint: Option<String>,
}

/// A dot.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub(super) at: Point,
    /// Tooltip.
    pub(super) hint: Option<String>,
}

/// The end of a text that is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Returns an upper bound of the width of a text.
pub(super) fn width_of(text: &str, is_bold: bool) -> f64 {
    let columns = u32::try_from(crate::sanitize::columns(text)).unwrap_or(u32::MAX);
    f64::from(columns) * if is_bold { 7.6 } else { 6.3 }
}

/// The most columns of a label. Titles and names come from outside.
pub(super) const MAX_LABEL_COLUMNS: usize = 100;
