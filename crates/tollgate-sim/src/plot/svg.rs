//! Writes a scene as SVG. Colors are CSS classes, so that charts follow the color scheme of the page or of the
//! reader.

use super::ink::{self, Ink};
use super::scene::{Anchor, Area, Dot, Point, Scene, Shape};
use crate::sanitize::markup;

/// Returns a standalone file with a transparent background.
pub(super) fn alone(scene: &Scene) -> String {
    let Scene { width, height, .. } = scene;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{label}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif\" \
         font-size=\"11\"><title>{label}</title><style>{style}</style>{shapes}</svg>\n",
        label = markup(&scene.words),
        style = ink::rules_alone(),
        shapes = shapes(scene),
    )
}

/// Returns an element for a page that contains [`ink::rules_within`] and sets the width.
pub(super) fn within(scene: &Scene) -> String {
    let Scene { width, height, .. } = scene;
    let (label, shapes) = (markup(&scene.words), shapes(scene));
    format!(
        "<svg class=\"tg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{shapes}</svg>"
    )
}

/// Formats a coordinate with two decimals, which is finer than any screen.
fn place(number: f64) -> String {
    let text = format!("{number:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn shapes(scene: &Scene) -> String {
    scene.shapes.iter().map(shape).collect()
}

fn shape(shape: &Shape) -> String {
    match shape {
        Shape::Line { points, ink, thick, is_dashed } => {
            let dashes: Vec<_> = ink.dashes().iter().map(ToString::to_string).collect();
            let dash = if *is_dashed && !dashes.is_empty() {
                format!(" stroke-dasharray=\"{}\"", dashes.join(" "))
            } else {
                String::new()
            };
            let (class, path) = (ink.class(), path(points));
            format!(
                "<path class=\"{class}\" d=\"{path}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"{thick}\" \
                 stroke-linejoin=\"round\"{dash}/>"
            )
        }
        Shape::Boxes { boxes, ink } => group(*ink, &rectangles(boxes)),
        Shape::Dots { dots, ink } => {
            let circle = |dot: &Dot| {
                let [x, y] = [dot.at.0, dot.at.1].map(place);
                with_hint("circle", &format!("cx=\"{x}\" cy=\"{y}\" r=\"3\""), dot.hint.as_deref())
            };
            group(*ink, &dots.iter().map(circle).collect::<String>())
        }
        Shape::Words { at, text, ink, anchor, is_bold } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let bold = if *is_bold { " font-size=\"13\" font-weight=\"650\"" } else { "" };
            let ([x, y], class, text) = ([at.0, at.1].map(place), ink.class(), markup(text));
            format!(
                "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" fill=\"currentColor\"{anchor}{bold}>{text}</text>"
            )
        }
    }
}

/// Returns shapes of one color.
fn group(ink: Ink, shapes: &str) -> String {
    format!("<g class=\"{}\" fill=\"currentColor\">{shapes}</g>", ink.class())
}

fn path(points: &[Point]) -> String {
    let step = |(index, (x, y)): (usize, &Point)| {
        format!("{}{} {}", if index == 0 { 'M' } else { 'L' }, place(*x), place(*y))
    };
    points.iter().enumerate().map(step).collect()
}

/// Returns an element for each box with a tooltip, and one path for the others.
fn rectangles(boxes: &[Area]) -> String {
    let (mut out, mut plain) = (String::new(), String::new());
    for Area { corner, size, hint } in boxes {
        let [x, y, wide, high] = [corner.0, corner.1, size.0, size.1].map(place);
        if hint.is_some() {
            let attributes = format!("x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{high}\"");
            out += &with_hint("rect", &attributes, hint.as_deref());
        } else {
            plain.extend(["M", &x, " ", &y, "h", &wide, "v", &high, "h-", &wide, "z"]);
        }
    }
    if plain.is_empty() { out } else { format!("{out}<path d=\"{plain}\"/>") }
}

/// Returns an element with its tooltip.
fn with_hint(element: &str, attributes: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("<{element} {attributes}><title>{}</title></{element}>", markup(hint)),
        None => format!("<{element} {attributes}/>"),
    }
}
