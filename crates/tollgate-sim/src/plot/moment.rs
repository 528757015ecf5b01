//! Times on an axis: their distances and formats. All times are UTC.

use jiff::Timestamp;

const DAY: f64 = 86_400.0;

/// Round distances between times, in seconds.
const STEPS: [f64; 30] = [
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    DAY,
    2.0 * DAY,
    7.0 * DAY,
    28.0 * DAY,
];

/// Returns the smallest round distance that makes at most `most` steps in `range` seconds.
pub(super) fn step(range: f64, most: f64) -> f64 {
    let least = range / most;
    STEPS.into_iter().find(|it| *it >= least).unwrap_or_else(|| (least / (28.0 * DAY)).ceil() * 28.0 * DAY)
}

/// Formats a time in seconds since 1970 with the precision that a distance of `step` needs. `None` if the time is
/// outside the calendar.
pub(super) fn written(at: f64, step: f64) -> Option<String> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a float outside saturates, and no calendar reaches there"
    )]
    let time = Timestamp::from_millisecond((at * 1000.0).round() as i64).ok()?;
    let midnight = at.rem_euclid(DAY) < 0.001;
    let form = match step {
        ..1.0 => "%H:%M:%S%.3f",
        ..60.0 => "%H:%M:%S",
        ..DAY if !midnight => "%H:%M",
        ..2_419_200.0 => "%-d %b",
        _ => "%b %Y",
    };
    Some(time.strftime(form).to_string())
}

/// Formats a time with its date, for tooltips.
pub(super) fn whole(at: f64) -> Option<String> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a float outside saturates, and no calendar reaches there"
    )]
    let time = Timestamp::from_second(at.floor() as i64).ok()?;
    Some(time.strftime("%-d %b %Y %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_times_follows_their_distance() {
        let at = 1_700_000_000.0; // 2023-11-14 22:13:20
        for (time, apart, text) in [
            (at, 0.5, "22:13:20.000"),
            (at, 10.0, "22:13:20"),
            (at, 3600.0, "22:13"),
            (1_700_006_400.0, 3600.0, "15 Nov"),
            (at, DAY, "14 Nov"),
            (at, 28.0 * DAY, "Nov 2023"),
        ] {
            assert_eq!(written(time, apart).as_deref(), Some(text));
        }
        assert_eq!(written(1e300, 1.0), None);
        assert_eq!((step(3600.0, 6.0), step(400.0 * DAY, 6.0)), (600.0, 84.0 * DAY));
    }
}
