//! Charts of the page. Strips and traffic scale with the page, so their labels are HTML beside them; curves are
//! charts of `plot`.

use super::sheet::Figure;
use crate::plot::cells::Shade;
use crate::plot::{Axis, Chart, Mark, Numbers, Role, Series, Strip, number};
use crate::replay::{Curve, CurvePoint, Heat};
use crate::sanitize::markup;

const HEIGHT: f64 = 100.0;

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
fn strip_of(heat: &Heat) -> Strip {
    let refused = |index: usize| heat.refused.get(index).copied().unwrap_or(0);
    let cells =
        heat.requests.iter().enumerate().map(|(index, requests)| (*requests, refused(index))).collect();
    Strip { from: heat.from as f64, step: heat.step as f64, cells }
}

/// Returns a chart of requests and refusals over time.
pub(super) fn traffic(heat: &Heat, path: &str) -> String {
    let strip = strip_of(heat);
    let Some((peak, most)) = strip.cells.iter().map(|it| it.0).enumerate().max_by_key(|it| it.1) else {
        return String::new();
    };
    let requests = Figure::new(format!("{path}.requests.{peak}"), most).plural("request", "requests");
    let each = Figure::new(format!("{path}.step"), heat.step).seconds();
    let layer = |class: &str, from: fn(u64, u64) -> (u64, u64)| {
        let bar = |(index, (requests, refused)): (usize, &(u64, u64))| {
            let (below, above) = from(*requests, *refused);
            let (top, high) = (HEIGHT - part(below + above, most), part(above, most));
            let hint = markup(&strip.hint(index));
            (above > 0).then(|| {
                format!(
                    "<rect x=\"{index}\" y=\"{top:.2}\" width=\".92\" height=\"{high:.2}\"><title>{hint}</title></rect>"
                )
            })
        };
        let bars: String = strip.cells.iter().enumerate().filter_map(bar).collect();
        format!("<g class=\"{class}\" fill=\"currentColor\">{bars}</g>")
    };
    let admitted =
        layer("tg-admitted", |requests, refused| (refused.min(requests), requests.saturating_sub(refused)));
    let refused = layer("tg-refused", |requests, refused| (0, refused.min(requests)));
    let said = format!(
        "Requests over time, at most {} in a bar, and how many of them were refused",
        number::count(most)
    );
    format!(
        "<figure class=\"traffic\"><div class=\"under-chart\"><p class=\"muted\">at most {requests} in a bar of {each}</p>\
         <ul class=\"legend\"><li><span class=\"tg-admitted\"></span>admitted</li>\
         <li><span class=\"tg-refused\"></span>refused</li></ul></div>\n{}{}</figure>\n",
        svg("bars", &strip, &said, &(admitted + &refused)),
        times(&strip),
    )
}

#[allow(clippy::cast_precision_loss, reason = "for a picture")]
fn part(value: u64, most: u64) -> f64 {
    if most == 0 { 0.0 } else { (value as f64 / most as f64).clamp(0.0, 1.0) * HEIGHT }
}

/// Returns a strip of the refusals of a limit over time.
pub(super) fn strip(heat: &Heat, path: &str) -> String {
    let strip = strip_of(heat);
    let most = strip.most();
    if most == 0 {
        return "<p class=\"nothing\">Never.</p>\n".to_owned();
    }
    let cell = |(index, cell): (usize, &(u64, u64))| {
        let shade = Shade::of(*cell, most);
        let (class, hint) = match shade {
            Shade::Empty => return None,
            Shade::Calm => ("tg-offered", String::new()),
            Shade::Refused(_) => ("tg-refused", format!("<title>{}</title>", markup(&strip.hint(index)))),
        };
        let opacity = shade.opacity();
        Some(format!(
            "<rect class=\"{class}\" x=\"{index}\" width=\".92\" height=\"100\" fill=\"currentColor\" \
             fill-opacity=\"{opacity}\">{hint}</rect>"
        ))
    };
    let cells: String = strip.cells.iter().enumerate().filter_map(cell).collect();
    let said = format!("When it refused: at most {} in a cell", number::count(most));
    let worst = strip.cells.iter().position(|it| it.1 == most).unwrap_or(0);
    let darkest = Figure::new(format!("{path}.refused.{worst}"), most);
    let each = Figure::new(format!("{path}.step"), heat.step).seconds();
    format!(
        "<figure class=\"strip\">{}{}\
         <figcaption class=\"muted\">darkest: {darkest} refused in {each}</figcaption></figure>\n",
        svg("cells", &strip, &said, &cells),
        times(&strip),
    )
}

/// Returns a chart of full width with these shapes.
fn svg(class: &str, strip: &Strip, said: &str, shapes: &str) -> String {
    let (cells, said) = (strip.cells.len().max(1), markup(said));
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {cells} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{said}\">\
         {shapes}</svg>\n"
    )
}

/// Returns the times below a chart of full width.
fn times(strip: &Strip) -> String {
    let time = |(place, text): (f64, String)| {
        let left = place * 100.0;
        let class = match left {
            ..6.0 => " class=\"first\"",
            ..94.0 => "",
            _ => " class=\"last\"",
        };
        format!("<span style=\"left:{left:.2}%\"{class}>{}</span>", markup(&text))
    };
    let times: String = strip.times(6).into_iter().map(time).collect();
    format!("<div class=\"times\" aria-hidden=\"true\">{times}</div>\n")
}

/// Returns a chart of the refusals that other numbers would have caused.
#[allow(clippy::cast_precision_loss, reason = "for a picture")]
pub(super) fn curve(points: &[CurvePoint], curve: &Curve, name: &str) -> String {
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
    chart.svg_within((460.0, 240.0))
}
