//! Properties of every chart: finite for any numbers, inert for any text, and legible with color vision deficiencies.

mod colors;
mod drawn;
pub(crate) mod markup;

use super::cells::Shade;
use super::*;

pub(super) fn series(name: &str, mark: Mark, role: Role, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), mark, role, points }
}

#[test]
fn a_chart_in_plain_ascii_shows_its_axes_its_level_and_its_lines() {
    let chart = Chart {
        title: "Edge".to_owned(),
        x: Axis { label: "seconds".to_owned(), ..Axis::default() },
        y: Axis { label: "admitted".to_owned(), ..Axis::default() },
        series: vec![
            series("all", Mark::Bars, Role::Offered, (0..10).map(|it| (f64::from(it), 20.0)).collect()),
            series("some", Mark::Steps, Role::Admitted, vec![(0.0, 5.0), (5.0, 15.0)]),
        ],
        levels: vec![(10.0, "limit".to_owned())],
        moments: vec![(5.0, "border".to_owned())],
    };
    let expected = "\
Edge
* all   + some   -- limit   ! border
admitted
20 +***********************************
   |***********************************
   |***********************************
15 +*****************++++++++++++++++++
   |*****************+*****************
   |*****************+*****************
10 +-----------------+-----------------
   |*****************+*****************
 5 +++++++++++++++++++*****************
   |***********************************
   |***********************************
 0 +***********************************
    0                5               10
                                seconds
";
    let drawn = chart.terminal(39, false);
    assert_eq!(drawn, expected, "\n{drawn}");
}

#[test]
fn a_strip_is_darkest_at_the_most_refusals() {
    let cells = (0..24).map(|hour| (if hour < 4 { 0 } else { 100 }, u64::saturating_sub(hour, 20))).collect();
    let strip = Strip { from: 1_700_006_400.0, step: 3600.0, cells };
    let shades: Vec<_> = strip.cells.iter().map(|it| Shade::of(*it, strip.most())).collect();
    assert_eq!((shades[3], shades[20]), (Shade::Empty, Shade::Calm));
    assert_eq!(shades[21..], [3, Shade::DARKEST, Shade::DARKEST].map(Shade::Refused));
    assert_eq!(strip.hint(23), "15 Nov 2023 23:00:00: 3 of 100 refused");
    let times: Vec<_> = strip.times(2).into_iter().map(|it| it.1).collect();
    assert_eq!(times, ["15 Nov", "12:00", "16 Nov"]);
}

#[test]
fn many_points_are_thinned_and_peaks_are_kept() {
    let mut points: Vec<_> = (0..200_000).map(|it| (f64::from(it), f64::from(it % 7))).collect();
    points[77_777].1 = 100.0;
    let chart = Chart { series: vec![series("", Mark::Line, Role::Offered, points)], ..Chart::default() };
    let svg = chart.svg();
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    let calm = Chart { y: Axis { to: Some(100.0), ..Axis::default() }, ..chart.clone() };
    assert_eq!(svg, calm.svg(), "its axis goes up to the peak");
    let top = svg.split("<path").skip(1).find(|it| it.contains("tg-offered")).unwrap().split(['L', 'M', '"']);
    let heights = top.filter_map(|it| it.split_once(' ')?.1.parse::<f64>().ok());
    assert!(heights.fold(f64::INFINITY, f64::min) < 10.0, "and so does its line");
}
