//! Writes a scene as SVG. Colors are CSS classes, so that charts follow the color scheme of the page or of the
//! reader.

use std::fmt::Write;

use super::ink;
use super::scene::{Anchor, Area, Point, Scene, Shape};
use crate::sanitize::markup;

/// Writes a standalone file with a transparent background.
pub(super) fn alone(scene: &Scene) -> String {
    let Scene { width, height, .. } = scene;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{label}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif\" \
         font-size=\"11\"><title>{label}</title><style>{style}</style>",
        label = markup(&scene.words),
        style = ink::rules_alone(),
    );
    shapes(scene, &mut out);
    out.push_str("</svg>\n");
    out
}

/// Writes an element for a page that contains [`ink::rules_within`] and sets the width.
pub(super) fn within(scene: &Scene) -> String {
    let Scene { width, height, .. } = scene;
    let label = markup(&scene.words);
    let mut out =
        format!("<svg class=\"tg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">");
    shapes(scene, &mut out);
    out.push_str("</svg>");
    out
}

/// Formats a coordinate with two decimals, which is finer than any screen.
fn place(number: f64) -> String {
    let text = format!("{number:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn shapes(scene: &Scene, out: &mut String) {
    for shape in &scene.shapes {
        // Writing to a string does not fail.
        let _ = match shape {
            Shape::Line { points, ink, thick, is_dashed } => {
                let dashes: Vec<_> = ink.dashes().iter().map(ToString::to_string).collect();
                let dash = if *is_dashed && !dashes.is_empty() {
                    format!(" stroke-dasharray=\"{}\"", dashes.join(" "))
                } else {
                    String::new()
                };
                let class = ink.class();
                write!(
                    out,
                    "<path class=\"{class}\" d=\"{}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"{thick}\" \
                     stroke-linejoin=\"round\"{dash}/>",
                    path(points)
                )
            }
            Shape::Boxes { boxes, ink, opacity } => {
                let _ = write!(out, "<g class=\"{}\" fill=\"currentColor\"", ink.class());
                if *opacity < 1.0 {
                    let _ = write!(out, " fill-opacity=\"{opacity}\"");
                }
                out.push('>');
                rectangles(boxes, out);
                out.write_str("</g>")
            }
            Shape::Dots { dots, ink } => {
                let _ = write!(out, "<g class=\"{}\" fill=\"currentColor\">", ink.class());
                for dot in dots {
                    let _ =
                        write!(out, "<circle cx=\"{}\" cy=\"{}\" r=\"3\"", place(dot.at.0), place(dot.at.1));
                    close("circle", dot.hint.as_deref(), out);
                }
                out.write_str("</g>")
            }
            Shape::Words { at, text, ink, anchor, is_bold } => {
                let anchor = match anchor {
                    Anchor::Start => "",
                    Anchor::Middle => " text-anchor=\"middle\"",
                    Anchor::End => " text-anchor=\"end\"",
                };
                let bold = if *is_bold { " font-size=\"13\" font-weight=\"650\"" } else { "" };
                write!(
                    out,
                    "<text class=\"{}\" x=\"{}\" y=\"{}\" fill=\"currentColor\"{anchor}{bold}>{}</text>",
                    ink.class(),
                    place(at.0),
                    place(at.1),
                    markup(text)
                )
            }
        };
    }
}

fn path(points: &[Point]) -> String {
    let mut out = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{} {}", if index == 0 { 'M' } else { 'L' }, place(*x), place(*y));
    }
    out
}

fn rectangles(boxes: &[Area], out: &mut String) {
    let mut plain = String::new();
    for Area { corner, size, hint } in boxes {
        let [x, y, wide, high] = [corner.0, corner.1, size.0, size.1].map(place);
        if hint.is_some() {
            let _ = write!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{high}\"");
            close("rect", hint.as_deref(), out);
        } else {
            let _ = write!(plain, "M{x} {y}h{wide}v{high}h-{wide}z");
        }
    }
    if !plain.is_empty() {
        let _ = write!(out, "<path d=\"{plain}\"/>");
    }
}

/// Closes an element, with its tooltip.
fn close(element: &str, hint: Option<&str>, out: &mut String) {
    match hint {
        Some(hint) => {
            let _ = write!(out, "><title>{}</title></{element}>", markup(hint));
        }
        None => out.push_str("/>"),
    }
}
