//! The numbers of one phase of a measurement.

use std::time::Duration;

use serde::Serialize;

use super::arrivals::Class;
use super::load::{Ending, Observation};
use crate::report::median;

/// The length of the windows in which recovery is looked for.
const RECOVERY_WINDOW: Duration = Duration::from_millis(500);
/// The time between the starts of these windows.
const RECOVERY_STEP: Duration = Duration::from_millis(50);
/// The least share of good answers in a window after recovery.
const RECOVERED_SUCCESS: f64 = 0.99;
/// The largest latency in a window after recovery, relative to that before the overload.
const RECOVERED_LATENCY: f64 = 1.2;

/// The numbers of one phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Requests per second that were sent.
    pub offered_per_second: f64,
    /// Requests per second that were answered within one second.
    pub good_per_second: f64,
    /// The same, as a share of the capacity.
    pub goodput: f64,
    /// The median latency of admitted requests, in milliseconds. One that was given up counts with the time until then.
    pub p50_ms: f64,
    /// The 90th percentile.
    pub p90_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The mean latency.
    pub mean_ms: f64,
    /// The share of answers within one second, by class.
    pub success: Success,
    /// The share of requests that were refused.
    pub refused: f64,
    /// The share of requests that timed out or failed.
    pub lost: f64,
    /// The median time from a refused request to its refusal, in milliseconds.
    pub refusal_p50_ms: Option<f64>,
    /// The 99th percentile of the time by which the load generator was late, in milliseconds.
    pub late_p99_ms: f64,
    /// The cores that the proxy used.
    pub cores: Option<f64>,
    /// The resident memory of the proxy at the end, in MiB.
    pub resident_mib: Option<f64>,
    /// The seconds until goodput and latency were those before the overload.
    pub recovered_s: Option<f64>,
    /// The learned limit at the end.
    pub limit: Option<f64>,
    /// The learned limit at the end, relative to Little's law.
    pub limit_over_little: Option<f64>,
    /// The seconds until the learned limit stayed within a quarter of Little's law.
    pub settled_s: Option<f64>,
}

/// The share of answers within one second, by class.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Success {
    /// The most important class.
    pub critical: f64,
    /// The class in the middle.
    pub normal: f64,
    /// The least important class.
    pub bulk: f64,
}

impl Figures {
    /// Computes the numbers that the callers see.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn of(observed: &[Observation], phase: Duration, capacity: f64) -> Self {
        let count = |is: &dyn Fn(&Observation) -> bool| observed.iter().filter(|it| is(it)).count() as f64;
        let seconds = phase.as_secs_f64();
        let share = |part: f64| part / (observed.len().max(1) as f64);
        let success = |class| {
            let all = count(&|it| it.class == class);
            count(&|it| it.class == class && it.is_good()) / all.max(1.0)
        };
        let admitted = sorted_ms(observed.iter().filter(|it| it.is_admitted()).map(|it| it.latency));
        let refusals =
            sorted_ms(observed.iter().filter(|it| it.ending == Ending::Refused).map(|it| it.latency));
        let good_per_second = count(&Observation::is_good) / seconds;
        Self {
            offered_per_second: observed.len() as f64 / seconds,
            good_per_second,
            goodput: good_per_second / capacity,
            p50_ms: percentile(&admitted, 0.5),
            p90_ms: percentile(&admitted, 0.9),
            p99_ms: percentile(&admitted, 0.99),
            mean_ms: admitted.iter().sum::<f64>() / admitted.len().max(1) as f64,
            success: Success {
                critical: success(Class::Critical),
                normal: success(Class::Normal),
                bulk: success(Class::Bulk),
            },
            refused: share(refusals.len() as f64),
            lost: share(count(&|it| matches!(it.ending, Ending::TimedOut | Ending::Failed))),
            refusal_p50_ms: (!refusals.is_empty()).then(|| percentile(&refusals, 0.5)),
            late_p99_ms: percentile(&sorted_ms(observed.iter().map(|it| it.late)), 0.99),
            ..Self::default()
        }
    }

    /// Returns the median of each number separately.
    pub fn median(rounds: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| median(rounds.iter().map(number));
        // A number that some rounds do not have is a target that was not reached.
        let maybe = |number: fn(&Self) -> Option<f64>| {
            let numbers: Option<Vec<f64>> = rounds.iter().map(number).collect();
            numbers.map(|it| median(it.into_iter()))
        };
        Self {
            offered_per_second: of(|it| it.offered_per_second),
            good_per_second: of(|it| it.good_per_second),
            goodput: of(|it| it.goodput),
            p50_ms: of(|it| it.p50_ms),
            p90_ms: of(|it| it.p90_ms),
            p99_ms: of(|it| it.p99_ms),
            mean_ms: of(|it| it.mean_ms),
            success: Success {
                critical: of(|it| it.success.critical),
                normal: of(|it| it.success.normal),
                bulk: of(|it| it.success.bulk),
            },
            refused: of(|it| it.refused),
            lost: of(|it| it.lost),
            refusal_p50_ms: maybe(|it| it.refusal_p50_ms),
            late_p99_ms: of(|it| it.late_p99_ms),
            cores: maybe(|it| it.cores),
            resident_mib: maybe(|it| it.resident_mib),
            recovered_s: maybe(|it| it.recovered_s),
            limit: maybe(|it| it.limit),
            limit_over_little: maybe(|it| it.limit_over_little),
            settled_s: maybe(|it| it.settled_s),
        }
    }
}

/// Returns the seconds from the start of a phase to its first half second in which nearly all requests are answered with
/// the latency of before; `None` if there is none.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn recovered_after(
    observed: &[Observation],
    (start, phase): (Duration, Duration),
    before: &Figures,
) -> Option<f64> {
    let mut after = Duration::ZERO;
    while after + RECOVERY_WINDOW <= phase {
        let window = (start + after)..(start + after + RECOVERY_WINDOW);
        let requests: Vec<_> = observed.iter().filter(|it| window.contains(&it.due_at)).collect();
        let good = requests.iter().filter(|it| it.is_good()).count() as f64;
        let latencies = sorted_ms(requests.iter().filter(|it| it.is_admitted()).map(|it| it.latency));
        let is_good = !requests.is_empty() && good >= RECOVERED_SUCCESS * requests.len() as f64;
        if is_good && percentile(&latencies, 0.9) <= RECOVERED_LATENCY * before.p90_ms {
            return Some(after.as_secs_f64());
        }
        after += RECOVERY_STEP;
    }
    None
}

/// Returns the seconds after which the median of each second stays within a quarter of a number; `None` if the last
/// second is outside.
pub fn settled_after(readings: &[(Duration, f64)], expected: f64) -> Option<f64> {
    let last = readings.last()?.0.as_secs();
    let is_near = |second: u64| {
        let of_second = readings.iter().filter(|it| it.0.as_secs() == second).map(|it| it.1);
        (median(of_second) / expected - 1.0).abs() <= 0.25
    };
    // A last second with a single reading is none.
    let seconds = 0..last;
    let outside = seconds.rev().find(|second| !is_near(*second));
    #[allow(clippy::cast_precision_loss, reason = "a few seconds")]
    match outside {
        None => Some(0.0),
        Some(second) if second + 1 < last => Some((second + 1) as f64),
        Some(_) => None,
    }
}

fn sorted_ms(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut times: Vec<f64> = times.map(|it| it.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Returns a percentile of sorted numbers; zero if there are none.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index"
)]
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn observation(due_ms: u64, latency_ms: u64, ending: Ending) -> Observation {
        let (class, late) = (Class::Critical, Duration::ZERO);
        let (due_at, latency) = (Duration::from_millis(due_ms), Duration::from_millis(latency_ms));
        Observation { class, due_at, late, latency, ending }
    }

    #[test]
    fn requests_that_time_out_are_admitted_and_not_good() {
        let observed = [
            observation(0, 20, Ending::Answered),
            observation(1, 1_000, Ending::TimedOut),
            observation(2, 1_200, Ending::Answered),
            observation(3, 1, Ending::Refused),
        ];
        let figures = Figures::of(&observed, SECOND, 2.0);
        assert!((figures.goodput - 0.5).abs() < 1e-9 && (figures.success.critical - 0.25).abs() < 1e-9);
        assert!((figures.p99_ms - 1_200.0).abs() < 1e-9 && (figures.refused - 0.25).abs() < 1e-9);
        assert!((figures.lost - 0.25).abs() < 1e-9);
    }

    #[test]
    fn recovery_needs_the_answers_and_the_latency_of_before() {
        let before = Figures { p90_ms: 20.0, ..Figures::default() };
        let answered = |from: u64, to, latency| {
            (from..to).step_by(10).map(move |due| observation(due, latency, Ending::Answered))
        };
        let slow: Vec<_> = answered(2_000, 2_800, 60).chain(answered(2_800, 5_000, 21)).collect();
        let phase = (Duration::from_secs(2), Duration::from_secs(3));
        // One slow request in ten is below the 90th percentile.
        let recovered = recovered_after(&slow, phase, &before).unwrap();
        assert!((0.75..=0.8).contains(&recovered), "{recovered}");
        let refused: Vec<_> = (2_000..5_000).map(|due| observation(due, 1, Ending::Refused)).collect();
        assert_eq!(recovered_after(&refused, phase, &before), None);
    }

    #[test]
    fn a_limit_settles_when_it_stays_near_the_expected_number() {
        let readings = |limits: &[f64]| -> Vec<(Duration, f64)> {
            let each = limits.iter().enumerate();
            each.map(|(at, limit)| (SECOND * u32::try_from(at).unwrap(), *limit)).collect()
        };
        let check = |limits: &[f64], expected: Option<f64>| {
            assert_eq!(settled_after(&readings(limits), 16.0), expected, "{limits:?}");
        };
        check(&[16.0, 16.0, 16.0, 99.0], Some(0.0));
        check(&[32.0, 22.0, 19.0, 18.0, 18.0], Some(2.0));
        check(&[32.0, 17.0, 30.0, 17.0], None);
    }
}
