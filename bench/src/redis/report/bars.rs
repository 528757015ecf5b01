//! Targets of the Redis store, and results.
//!
//! A ratio is taken within a round, against the baseline right before it, and the median of the rounds counts: a
//! machine that slows down for a while slows both. The baseline is the faster of two ways to make one call per
//! decision.

use super::{Measured, Row};
use crate::redis::Case;
use crate::redis::latency::Round;
use crate::report::{Bar, median};

pub(super) fn all(measured: &Measured) -> Vec<Bar> {
    let Measured { rows, latency, round_trips, exactness } = measured;
    let row = |case: Case| rows.iter().find(|row| row.case == case.name());
    let faster = own_script(rows).max(1.0);
    let speed = |case| row(case).map(|row| row.times_baseline / faster);
    let percent = row(Case::Refused).map(|row| row.median.commands * 100.0);
    let ratio = |of: fn(&Round) -> f64| Some(median(latency.iter().map(of))).filter(|it| it.is_finite());
    let trips = share(round_trips.calls.max(round_trips.scripts), round_trips.decisions);
    let wrong = exactness.iter().filter(|spent| !spent.is_exact()).count() as u64;
    vec![
        Bar::at_least(2.0, "many_keys: decisions/s / baseline", speed(Case::ManyKeys)),
        Bar::at_least(10.0, "hot_key: decisions/s / baseline", speed(Case::HotKey)),
        Bar::at_least(20.0, "refused: decisions/s / baseline", speed(Case::Refused)),
        Bar::at_most(1.0, "refused: Redis commands for 100 decisions", percent),
        Bar::at_most(
            1.15,
            "one at a time: p50 / p50 of a bare EVALSHA",
            ratio(|it| it.one_limit.p50_us / it.bare.p50_us),
        ),
        Bar::at_most(1.0, "one at a time: calls to Redis / decisions", trips),
        Bar::at_most(
            1.5,
            "one at a time: p50 of three limits / one",
            ratio(|it| it.three_limits.p50_us / it.one_limit.p50_us),
        ),
        Bar::at_most(
            0.0,
            "exactness: rounds that did not admit the limit",
            share(wrong, 1).filter(|_| !exactness.is_empty()),
        ),
    ]
}

/// Returns how much faster Tollgate's script is than the shortest one, with one call per decision.
pub(super) fn own_script(rows: &[Row]) -> f64 {
    rows.iter().find(|row| row.case == Case::OwnScript.name()).map_or(0.0, |row| row.times_baseline)
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn share(of: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| of as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::exactness::Spent;
    use crate::redis::latency::{Latency, RoundTrips};
    use crate::redis::report::Pair;
    use crate::redis::trial::Sample;

    fn measured(rows: Vec<Row>) -> Measured {
        let round_trips = RoundTrips { decisions: 10, calls: 10, scripts: 10, failures: 0 };
        Measured { rows, latency: Vec::new(), round_trips, exactness: Vec::new() }
    }

    fn sample(per_second: f64) -> Sample {
        Sample {
            decisions: 1,
            per_second,
            redis_cpu_us: 1.0,
            client_cpu_us: 1.0,
            per_call: None,
            commands: 0.001,
            redis_busy: 1.0,
            waited: 0.0,
            others: 0.0,
        }
    }

    fn row(case: Case, rounds: [(f64, f64); 3]) -> Row {
        let pair = |(baseline, it)| Pair { baseline: sample(baseline), sample: sample(it) };
        Row::new(case, rounds.map(pair).into())
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // The machine is half as fast in the second round, for both.
        let bars = all(&measured(vec![row(Case::ManyKeys, [(100.0, 250.0), (50.0, 125.0), (100.0, 260.0)])]));
        assert!((bars[0].got.unwrap() - 2.5).abs() < 1e-9);
        let met: Vec<_> = bars.iter().map(|bar| bar.met).collect();
        assert_eq!(met, [Some(true), None, None, None, None, Some(true), None, None]);
    }

    #[test]
    fn a_disturbed_round_counts_only_if_there_is_no_other() {
        let mut rounds = row(Case::HotKey, [(1.0, 5.0), (1.0, 11.0), (1.0, 5.0)]).rounds;
        rounds[0].baseline.others = 0.5;
        rounds[2].sample.waited = 0.5;
        let row = Row::new(Case::HotKey, rounds.clone());
        assert!((row.times_baseline - 11.0).abs() < 1e-9 && !row.is_disturbed());
        rounds[1].sample.others = 0.5;
        let row = Row::new(Case::HotKey, rounds);
        assert!((row.times_baseline - 5.0).abs() < 1e-9 && row.is_disturbed());
    }

    #[test]
    fn the_faster_of_two_baselines_counts() {
        let keys = row(Case::ManyKeys, [(100.0, 250.0); 3]);
        let slow = all(&measured(vec![keys.clone(), row(Case::OwnScript, [(100.0, 50.0); 3])]));
        assert_eq!(slow[0].met, Some(true));
        let fast = all(&measured(vec![keys, row(Case::OwnScript, [(100.0, 200.0); 3])]));
        assert!((fast[0].got.unwrap() - 1.25).abs() < 1e-9);
        assert_eq!(fast[0].met, Some(false));
    }

    #[test]
    fn an_extra_call_or_a_missing_admission_misses_the_target() {
        let mut measured = measured(vec![row(Case::Refused, [(1.0, 21.0); 3])]);
        let of = |p50_us| Latency { answers: 1, p50_us, p99_us: 1.0 };
        measured.latency = vec![Round { bare: of(1.0), one_limit: of(1.1), three_limits: of(1.7) }];
        measured.round_trips.scripts = 11;
        let spent = |last| Spent { admitted: vec![30, 30, last], limit: 100 };
        measured.exactness = vec![spent(40), spent(39), spent(41)];
        let bars = all(&measured);
        let met: Vec<_> = bars[2..].iter().map(|bar| bar.met).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(met, [yes, yes, yes, no, no, no]);
        assert!((bars[7].got.unwrap() - 2.0).abs() < 1e-9);
    }
}
