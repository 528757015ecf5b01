//! After ten million steps, time and count still agree to the tick.

use tollgate_core::{
    Algorithm, Bucket, FixedWindow, QuotaError, Rate, SlidingLog, SlidingParts, SlidingWindow, Span,
};

use crate::trace::START;

const STEPS: u64 = 10_000_000;

/// Takes one unit repeatedly, and waits exactly as long as the answer says. Returns the number of
/// admissions and the elapsed time.
fn always_at_retry(algorithm: &impl Algorithm, steps: u64) -> (u64, Span) {
    let (mut state, mut now) = (algorithm.fresh(), START);
    let mut admitted = 0;
    let mut last = START;
    for _ in 0..steps {
        let outcome = algorithm.step(&mut state, 1, now);
        if let Some(wait) = outcome.retry_after() {
            now = now + wait;
        } else {
            (admitted, last) = (admitted + 1, now);
        }
    }
    (admitted, last.since(START))
}

/// After the burst, unit `n` passes at `ceil(n·T)`: exact at the end implies exact throughout.
#[track_caller]
fn check(rate: Rate, burst: u64) {
    let bucket = Bucket::new(rate).and_then(|bucket| bucket.with_burst(burst)).expect("a valid rate");
    let (admitted, took) = always_at_retry(&bucket, STEPS);
    let paced = u128::from(admitted - burst);
    let exact = (paced * u128::from(rate.period.as_micros())).div_ceil(rate.count.into());
    assert_eq!(u128::from(took.as_micros()), exact, "{admitted} units at {rate}");
    assert!(admitted >= STEPS / 2, "every refusal is followed by a unit that passes");
}

#[test]
fn seven_a_minute_does_not_drift() {
    check(Rate::per_minute(7), 7);
}

#[test]
fn one_a_month_does_not_drift() {
    check(Rate::new(1, Span::from_days(30)), 1);
}

#[test]
fn three_million_a_second_do_not_drift() {
    check(Rate::per_second(3_000_000), 3_000);
}

#[test]
fn a_prime_rate_does_not_drift() {
    check(Rate::new(1_000_003, Span::from_secs(86_399)), 10);
}

#[test]
fn windows_do_not_drift() -> Result<(), QuotaError> {
    let rate = Rate::per_minute(7);
    let minutes = |admitted: u64| (admitted - 1) / 7 * 60_000_000;
    let (admitted, took) = always_at_retry(&SlidingLog::new(rate)?, 1_000_000);
    assert_eq!(took.as_micros(), minutes(admitted));
    let (admitted, took) = always_at_retry(&FixedWindow::anchored(rate)?, 1_000_000);
    assert_eq!(took.as_micros(), minutes(admitted));
    let into_the_minute = START.as_micros() % 60_000_000;
    let (admitted, took) = always_at_retry(&FixedWindow::epoch(rate)?, 1_000_000);
    assert_eq!(took.as_micros(), minutes(admitted) - into_the_minute);
    Ok(())
}

/// The estimate carries no fraction, so no error can accumulate: over many windows it admits its
/// limit per window, and at most one limit in addition.
#[test]
fn the_estimate_admits_its_limit_a_window_in_the_long_run() -> Result<(), QuotaError> {
    let holds = |(admitted, took): (u64, Span)| {
        let exact = took.as_micros() * 7 / 60_000_000;
        assert!(admitted <= exact + 7, "{admitted} in {took}, that is {exact}");
        admitted - exact.min(admitted)
    };
    let rate = Rate::per_minute(7);
    holds(always_at_retry(&SlidingWindow::new(rate)?, 1_000_000));
    for parts in [2, 3, 7] {
        let more = holds(always_at_retry(&SlidingParts::new(rate, parts)?, 1_000_000));
        assert_eq!(
            more, 7,
            "{parts} parts lose nothing either: the first window, and then its limit a window"
        );
    }
    Ok(())
}
