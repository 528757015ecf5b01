//! Charts of the page. Strips and traffic scale with the page, so their labels are HTML beside them; curves are
//! charts of `plot`.

use std::fmt::Write;

use super::sheet::{Figure, Sheet};
use crate::plot::cells::Shade;
use crate::plot::{Axis, Chart, Mark, Numbers, Role, Series, Strip, number};
use crate::replay::{Curve, CurvePoint, Heat};
use crate::sanitize::markup;

const HEIGHT: f64 = 100.0;

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
fn strip_of(heat: &Heat, label: &str) -> Strip {
    let refused = |index: usize| heat.refused.get(index).copied().unwrap_or(0);
    let cells = heat.requests.iter().enumerate().map(|(index, asked)| (*asked, refused(index))).collect();
    Strip { label: label.to_owned(), from: heat.from as f64, step: heat.step as f64, cells }
}

/// Writes a chart of requests and refusals over time.
pub(super) fn traffic(sheet: &mut Sheet, heat: &Heat, path: &str) {
    let strip = strip_of(heat, "");
    let Some((peak, most)) = strip.cells.iter().map(|it| it.0).enumerate().max_by_key(|it| it.1) else {
        return;
    };
    let said = format!(
        "Requests over time, at most {} in a bar, and how many of them were refused",
        number::count(most)
    );
    sheet.raw("<figure class=\"traffic\"><div class=\"under-chart\"><p class=\"muted\">at most ");
    sheet.plural(&Figure::new(format!("{path}.requests.{peak}"), most), "request", "requests");
    sheet.raw(" in a bar of ");
    sheet.seconds(&Figure::new(format!("{path}.step"), heat.step));
    sheet.raw(
        "</p><ul class=\"legend\"><li><span class=\"tg-admitted\"></span>admitted</li>\
         <li><span class=\"tg-refused\"></span>refused</li></ul></div>\n",
    );
    open(sheet, "bars", strip.cells.len(), &said);
    let layer = |class: &str, from: fn(u64, u64) -> (u64, u64)| {
        let mut shapes = String::new();
        for (index, (asked, refused)) in strip.cells.iter().enumerate() {
            let (below, above) = from(*asked, *refused);
            if above > 0 {
                let (top, high) = (HEIGHT - part(below + above, most), part(above, most));
                let _ = write!(
                    shapes,
                    "<rect x=\"{index}\" y=\"{top:.2}\" width=\".92\" height=\"{high:.2}\"><title>{}</title></rect>",
                    markup(&strip.hint(index))
                );
            }
        }
        format!("<g class=\"{class}\" fill=\"currentColor\">{shapes}</g>")
    };
    sheet.raw(&layer("tg-admitted", |asked, refused| (refused.min(asked), asked.saturating_sub(refused))));
    sheet.raw(&layer("tg-refused", |asked, refused| (0, refused.min(asked))));
    sheet.raw("</svg>\n");
    times(sheet, &strip);
    sheet.raw("</figure>\n");
}

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
fn part(value: u64, most: u64) -> f64 {
    if most == 0 { 0.0 } else { (value as f64 / most as f64).clamp(0.0, 1.0) * HEIGHT }
}

/// Writes a strip of the refusals of a limit over time.
pub(super) fn strip(sheet: &mut Sheet, heat: &Heat, path: &str, name: &str) {
    let strip = strip_of(heat, name);
    let most = strip.most();
    if most == 0 {
        sheet.raw("<p class=\"nothing\">Never.</p>\n");
        return;
    }
    let worst = strip.cells.iter().position(|it| it.1 == most).unwrap_or(0);
    sheet.raw("<figure class=\"strip\">");
    open(
        sheet,
        "cells",
        strip.cells.len(),
        &format!("When it refused: at most {} in a cell", number::count(most)),
    );
    for (index, cell) in strip.cells.iter().enumerate() {
        let shade = Shade::of(*cell, most);
        let (class, hint) = match shade {
            Shade::Empty => continue,
            Shade::Calm => ("tg-offered", String::new()),
            Shade::Refused(_) => ("tg-refused", format!("<title>{}</title>", markup(&strip.hint(index)))),
        };
        let opacity = shade.opacity();
        sheet.raw(&format!(
            "<rect class=\"{class}\" x=\"{index}\" width=\".92\" height=\"100\" fill=\"currentColor\" \
             fill-opacity=\"{opacity}\">{hint}</rect>"
        ));
    }
    sheet.raw("</svg>\n");
    times(sheet, &strip);
    sheet.raw("<figcaption class=\"muted\">darkest: ");
    sheet.number(&Figure::new(format!("{path}.refused.{worst}"), most));
    sheet.raw(" refused in ");
    sheet.seconds(&Figure::new(format!("{path}.step"), heat.step));
    sheet.raw("</figcaption></figure>\n");
}

fn open(sheet: &mut Sheet, class: &str, cells: usize, said: &str) {
    let (cells, said) = (cells.max(1), markup(said));
    sheet.raw(&format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {cells} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{said}\">"
    ));
}

/// Writes the times below a chart of full width.
fn times(sheet: &mut Sheet, strip: &Strip) {
    sheet.raw("<div class=\"times\" aria-hidden=\"true\">");
    for (place, text) in strip.times(6) {
        let left = place * 100.0;
        let class = match left {
            ..6.0 => " class=\"first\"",
            ..94.0 => "",
            _ => " class=\"last\"",
        };
        sheet.raw(&format!("<span style=\"left:{left:.2}%\"{class}>{}</span>", markup(&text)));
    }
    sheet.raw("</div>\n");
}

/// Writes a chart of the refusals that other numbers would have caused.
#[allow(clippy::cast_precision_loss, reason = "for a picture")]
pub(super) fn curve(sheet: &mut Sheet, points: &[CurvePoint], curve: &Curve, name: &str) {
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let line = |value: fn(&CurvePoint) -> u64, whole: u64| -> Vec<(f64, f64)> {
        points.iter().map(|it| (it.value as f64, share(value(it), whole))).collect()
    };
    let requests = line(|it| it.refused, curve.requests);
    let keys = line(|it| it.keys_refused, curve.keys);
    let series = |name: &str, mark, role, points: &Vec<_>| Series {
        name: name.to_owned(),
        mark,
        role,
        points: points.clone(),
    };
    let own = points.iter().find(|it| (it.factor - 1.0).abs() < 1e-9);
    let chart = Chart {
        x: Axis {
            label: if name == "rates" { "units in a period" } else { "burst" }.to_owned(),
            numbers: Numbers::Logarithmic,
            to: None,
        },
        y: Axis { numbers: Numbers::Percent, ..Axis::default() },
        series: vec![
            series("keys refused", Mark::Line, Role::Contestant(3), &keys),
            series("requests refused", Mark::Line, Role::Refused, &requests),
            series("", Mark::Dots, Role::Refused, &requests),
        ],
        moments: own.map(|it| (it.value as f64, "now".to_owned())).into_iter().collect(),
        ..Chart::default()
    };
    sheet.raw(&chart.svg_within((460.0, 240.0)));
}
