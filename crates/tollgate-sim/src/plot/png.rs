//! A scene as PNG: on white, two dots for each pixel of the layout.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a scene is a few hundred wide and high"
)]

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke,
    StrokeDash, Transform,
};

use super::ink::Ink;
use super::scene::{Anchor, Point, Scene, Shape};

const PIXEL_RATIO: f32 = 2.0;
/// White around the scene, in pixels of the layout.
const MARGIN: f32 = 14.0;

/// The picture. Empty if there is no memory for it.
pub(super) fn picture(scene: &Scene) -> Vec<u8> {
    let size = |length: f64| ((length as f32 + 2.0 * MARGIN) * PIXEL_RATIO).ceil() as u32;
    let Some(mut pixmap) = Pixmap::new(size(scene.width), size(scene.height)) else {
        return Vec::new();
    };
    pixmap.fill(Color::WHITE);
    let place = Transform::from_translate(MARGIN, MARGIN).post_scale(PIXEL_RATIO, PIXEL_RATIO);
    for shape in &scene.shapes {
        match shape {
            Shape::Line { points, ink, thick, is_dashed } => {
                let dash = Some(ink.dashes()).filter(|it| *is_dashed && !it.is_empty());
                let stroke = Stroke {
                    width: *thick as f32,
                    line_cap: LineCap::Butt,
                    line_join: LineJoin::Round,
                    dash: dash.and_then(|it| StrokeDash::new(it.to_vec(), 0.0)),
                    ..Stroke::default()
                };
                if let Some(path) = through(points) {
                    pixmap.stroke_path(&path, &paint(*ink, 1.0), &stroke, place, None);
                }
            }
            Shape::Boxes { boxes, ink, opacity } => {
                for area in boxes {
                    let [x, y, wide, high] =
                        [area.corner.0, area.corner.1, area.size.0, area.size.1].map(|it| it as f32);
                    if let Some(rect) = Rect::from_xywh(x, y, wide, high) {
                        pixmap.fill_rect(rect, &paint(*ink, *opacity as f32), place, None);
                    }
                }
            }
            Shape::Dots { dots, ink } => {
                for dot in dots {
                    if let Some(path) = PathBuilder::from_circle(dot.at.0 as f32, dot.at.1 as f32, 3.0) {
                        pixmap.fill_path(&path, &paint(*ink, 1.0), FillRule::Winding, place, None);
                    }
                }
            }
            Shape::Words { at, text, ink, anchor, is_bold } => {
                write(&mut pixmap, *at, &spelt(text), *ink, *anchor, *is_bold);
            }
        }
    }
    pixmap.encode_png().unwrap_or_default()
}

fn paint(ink: Ink, opacity: f32) -> Paint<'static> {
    let (red, green, blue) = ink.colours().0;
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (opacity.clamp(0.0, 1.0) * 255.0) as u8);
    paint.anti_alias = true;
    paint
}

fn through(points: &[Point]) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (index, (x, y)) in points.iter().enumerate() {
        if index == 0 {
            path.move_to(*x as f32, *y as f32);
        } else {
            path.line_to(*x as f32, *y as f32);
        }
    }
    path.finish()
}

/// In characters that there are pictures of.
fn spelt(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '…' => out.push_str("..."),
            '–' | '—' | '−' => out.push('-'),
            '’' | '‘' => out.push('\''),
            '“' | '”' => out.push('"'),
            '→' => out.push_str("->"),
            '≤' => out.push_str("<="),
            '≥' => out.push_str(">="),
            _ => out.push(char),
        }
    }
    out
}

fn write(pixmap: &mut Pixmap, at: Point, text: &str, ink: Ink, anchor: Anchor, is_bold: bool) {
    let (weight, height) = if is_bold {
        (FontWeight::Bold, RasterHeight::Size24)
    } else {
        (FontWeight::Regular, RasterHeight::Size20)
    };
    let advance = get_raster_width(weight, height) as f32;
    let length = text.chars().count() as f32 * advance;
    let back = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => length / 2.0,
        Anchor::End => length,
    };
    // Letters stand on a line at four fifths of their picture's height.
    let top = (at.1 as f32 + MARGIN) * PIXEL_RATIO - height.val() as f32 * 0.8;
    let mut left = (at.0 as f32 + MARGIN) * PIXEL_RATIO - back;
    for char in text.chars() {
        if let Some(glyph) = get_raster(char, weight, height).or_else(|| get_raster('?', weight, height)) {
            for (row, line) in glyph.rows().enumerate() {
                for (column, strength) in line.iter().enumerate() {
                    blend(pixmap, (left as i64 + column as i64, top as i64 + row as i64), ink, *strength);
                }
            }
        }
        left += advance;
    }
}

/// Puts ink of this strength on a dot. What lies outside is left out.
fn blend(pixmap: &mut Pixmap, (x, y): (i64, i64), ink: Ink, strength: u8) {
    let (width, height) = (i64::from(pixmap.width()), i64::from(pixmap.height()));
    if strength == 0 || x < 0 || y < 0 || x >= width || y >= height {
        return;
    }
    let Some(dot) = pixmap.pixels_mut().get_mut((y * width + x) as usize) else {
        return;
    };
    let mix = |new: u8, old: u8| {
        let (new, old, part) = (u32::from(new), u32::from(old), u32::from(strength));
        ((new * part + old * (255 - part)) / 255) as u8
    };
    let (red, green, blue) = ink.colours().0;
    let mixed = PremultipliedColorU8::from_rgba(
        mix(red, dot.red()),
        mix(green, dot.green()),
        mix(blue, dot.blue()),
        255,
    );
    *dot = mixed.unwrap_or(*dot);
}
