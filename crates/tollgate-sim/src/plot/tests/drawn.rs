//! Charts of arbitrary numbers and text are finite, well-formed and no wider than requested.

use proptest::prelude::*;

use super::markup::elements;
use super::*;

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0..1000.0,
        2 => 1.6e9..1.8e9,
        1 => proptest::num::f64::ANY,
        1 => prop_oneof![
            Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::MAX), Just(f64::MIN_POSITIVE), Just(-0.0)
        ],
    ]
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "[ -~]{0,20}",
        1 => any::<String>(),
        1 => Just("</title><script>alert(1)</script>\"'&\u{202e}\u{1b}[2J\u{0}\n字".to_owned()),
        1 => "x{0,300}",
    ]
}

fn numbers() -> impl Strategy<Value = Numbers> {
    prop::sample::select(vec![Numbers::Plain, Numbers::Percent, Numbers::Time, Numbers::Logarithmic])
}

fn axis() -> impl Strategy<Value = Axis> {
    (words(), numbers(), prop::option::weighted(0.2, number())).prop_map(|(label, numbers, to)| Axis {
        label,
        numbers,
        to,
    })
}

fn any_series() -> impl Strategy<Value = Series> {
    let mark = prop::sample::select(vec![Mark::Line, Mark::Steps, Mark::Bars, Mark::Dots]);
    let role = prop_oneof![Just(Role::Refused), any::<u8>().prop_map(Role::Contestant)];
    (words(), mark, role, prop::collection::vec((number(), number()), 0..30))
        .prop_map(|(name, mark, role, points)| Series { name, mark, role, points })
}

fn marks() -> impl Strategy<Value = Vec<(f64, String)>> {
    prop::collection::vec((number(), words()), 0..4)
}

fn chart() -> impl Strategy<Value = Chart> {
    (words(), axis(), axis(), prop::collection::vec(any_series(), 0..4), marks(), marks())
        .prop_map(|(title, x, y, series, levels, moments)| Chart { title, x, y, series, levels, moments })
}

fn strip() -> impl Strategy<Value = Strip> {
    let cell = prop_oneof![(0..100_u64, 0..100_u64), any::<(u64, u64)>()];
    (number(), number(), prop::collection::vec(cell, 0..50)).prop_map(|(from, step, cells)| Strip {
        from,
        step,
        cells,
    })
}

/// Checks that every coordinate is a number within the chart, and that all elements are expected ones.
fn check_svg(svg: &str) {
    let ours = ["svg", "title", "style", "g", "path", "rect", "circle", "text"];
    for element in elements(svg).unwrap() {
        assert!(ours.contains(&element.as_str()), "{element} in {svg}");
    }
    for name in ["x", "y", "cx", "cy", "width", "height", "d"] {
        for part in svg.split(&format!(" {name}=\"")).skip(1) {
            let value = part.split('"').next().unwrap();
            for number in
                value.split(|it: char| it.is_ascii_alphabetic() || it == ' ').filter(|it| !it.is_empty())
            {
                let number: f64 = number.parse().unwrap_or_else(|_| panic!("{number:?} in {name}={value:?}"));
                assert!((-720.0..=720.1).contains(&number), "{name}={value:?}");
            }
        }
    }
}

fn check_terminal(drawn: &str, width: usize, color: bool) {
    for line in drawn.lines() {
        let mut plain = String::new();
        let mut chars = line.chars();
        while let Some(char) = chars.next() {
            if char == '\u{1b}' {
                assert!(color, "an escape without color: {line:?}");
                let code: String = chars.by_ref().take_while(|it| *it != 'm').collect();
                assert!(code.starts_with("[38;5;") || code == "[0", "another escape than a color: {line:?}");
            } else {
                assert!(!char.is_control(), "{line:?}");
                plain.push(char);
            }
        }
        // Wide characters take two columns.
        let columns: usize = plain.chars().map(|it| if it as u32 >= 0x2e80 { 2 } else { 1 }).sum();
        assert!(columns <= width, "{columns} columns of {width}: {plain:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_chart_is_finite_well_formed_and_inert(chart in chart()) {
        check_svg(&chart.svg());
    }

    #[test]
    fn the_times_of_any_strip_are_within_it_and_every_cell_has_a_hint(strip in strip()) {
        assert!(strip.times(6).iter().all(|(place, _)| (0.0..=1.0).contains(place)));
        assert!((0..strip.cells.len()).all(|cell| strip.hint(cell).ends_with(" refused")));
    }

    #[test]
    fn terminal_output_never_exceeds_the_width(chart in chart(), width in 0..130_usize, color: bool) {
        check_terminal(&chart.terminal(width, color), width, color);
    }
}
