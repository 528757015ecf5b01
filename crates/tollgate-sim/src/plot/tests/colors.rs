//! Colors as seen with color vision deficiencies: by the matrices of Machado, Oliveira and Fernandes (2009), with
//! distances in CIELAB, of which 2 is just noticeable.

use super::super::ink::{Ink, Rgb};
use super::Role;

const SIGHTS: [(&str, [[f64; 3]; 3]); 4] = [
    ("all colors", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "no red",
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ),
    (
        "no green",
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ),
    (
        "no blue",
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ),
];

fn linear((red, green, blue): Rgb) -> [f64; 3] {
    [red, green, blue].map(|it| {
        let it = f64::from(it) / 255.0;
        if it <= 0.040_45 { it / 12.92 } else { ((it + 0.055) / 1.055).powf(2.4) }
    })
}

fn times(matrix: &[[f64; 3]; 3], [a, b, c]: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row[0] * a + row[1] * b + row[2] * c)
}

fn lab(seen: [f64; 3]) -> [f64; 3] {
    let to_xyz =
        [[0.433_95, 0.376_21, 0.189_84], [0.212_67, 0.715_15, 0.072_18], [0.017_76, 0.109_47, 0.872_77]];
    let root = |it: f64| if it > 0.008_856 { it.cbrt() } else { 7.787 * it + 16.0 / 116.0 };
    let [x, y, z] = times(&to_xyz, seen.map(|it| it.clamp(0.0, 1.0))).map(root);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(one: Rgb, other: Rgb, sight: &[[f64; 3]; 3]) -> f64 {
    let [a, b] = [one, other].map(|it| lab(times(sight, linear(it))));
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn contrast(one: Rgb, other: Rgb) -> f64 {
    let [a, b] = [one, other].map(|it| {
        let [red, green, blue] = linear(it);
        0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
    });
    (a / b).max(b / a)
}

#[test]
fn roles_are_distinguishable_with_color_vision_deficiencies() {
    let roles = vec![Role::Offered, Role::Admitted, Role::Refused];
    let contestants = (0..7).map(Role::Contestant).collect();
    for group in [roles, contestants] {
        for (index, one) in group.iter().enumerate() {
            for other in &group[..index] {
                let ((light, dark), (light2, dark2)) = (Ink::Role(*one).colors(), Ink::Role(*other).colors());
                for (name, sight) in &SIGHTS {
                    for (one_seen, other_seen) in [(light, light2), (dark, dark2)] {
                        let apart = distance(one_seen, other_seen, sight);
                        assert!(apart > 20.0, "{one:?} and {other:?}, who sees {name}: {apart:.1}");
                    }
                }
            }
        }
    }
}

#[test]
fn text_and_lines_contrast_with_the_background() {
    let (white, black) = ((0xff, 0xff, 0xff), (0x14, 0x18, 0x1f));
    let lines = (0..7).map(Role::Contestant).chain([Role::Admitted, Role::Refused]).map(Ink::Role);
    for (ink, least) in
        [(Ink::Text, 7.0), (Ink::Soft, 4.5), (Ink::Mark, 4.5)].into_iter().chain(lines.map(|it| (it, 3.0)))
    {
        let (light, dark) = ink.colors();
        for (color, page) in [(light, white), (dark, black)] {
            assert!(contrast(color, page) >= least, "{ink:?}: {:.2}", contrast(color, page));
        }
    }
}
