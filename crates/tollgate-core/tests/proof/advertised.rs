//! The advertised rate is the rate that the quota sustains.
//!
//! The sustained rate is taken from the numbers of the quota and, independently, from the
//! admissions of a saturated key over many windows.

use proptest::prelude::*;
use tollgate_core::{
    Algorithm as _, Amount, Bucket, Calendar, CalendarUnit, FixedWindow, MAX_UNITS, Quota, Rate, SlidingLog,
    Span, Timestamp, Window,
};

use crate::model::calendar::square;
use crate::quotas;
use crate::seed::check;
use crate::trace::START;

/// Returns the units and microseconds of the rate in the quota's own numbers.
fn sustained(quota: &Quota, now: Timestamp) -> (u128, u128) {
    let (units, micros) = match quota {
        Quota::Bucket(it) => (it.rate().count, it.rate().period.as_micros()),
        Quota::SlidingWindow(it) => (it.rate().count, it.rate().period.as_micros()),
        Quota::SlidingParts(it) => (it.rate().count, it.rate().period.as_micros()),
        Quota::SlidingLog(it) => (it.rate().count, it.rate().period.as_micros()),
        Quota::FixedWindow(it) => match it.window() {
            Window::Epoch(length) | Window::Anchored(length) => (it.capacity(), length.as_micros()),
            Window::Calendar(calendar) => {
                let (start, end) = square(calendar, now.as_micros().into());
                (it.capacity(), u64::try_from(end - start).expect("a window ends after it starts"))
            }
        },
        Quota::Concurrency(_) => unreachable!("slots have no rate"),
    };
    (units.into(), micros.into())
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[test]
fn advertised_units_over_seconds_is_the_sustained_rate() {
    let quotas = prop_oneof![
        3 => quotas::buckets(),
        2 => quotas::fixed_windows(),
        1 => quotas::tallies(),
        1 => quotas::sliding_windows(),
        1 => quotas::sliding_parts(),
        1 => quotas::sliding_logs(),
    ];
    check(6_000, (quotas, 0..100_000_000_000_000_u64), |(quota, later)| {
        let now = START + Span::from_micros(later);
        let advertised = quota.advertised(now).expect("it has a rate");
        let (units, micros) = sustained(&quota, now);
        let (q, w) = (u128::from(advertised.units), u128::from(advertised.seconds));
        prop_assert!(w >= 1 && q <= u128::from(MAX_UNITS), "{quota}: {advertised:?}");
        prop_assert!(advertised.units >= quota.capacity(), "{quota}: {advertised:?}");
        prop_assert!(advertised.valid.contains(&now), "{quota}: {advertised:?}");
        // Compares q / w with units / (micros / 10^6), without division.
        let (advertised_rate, true_rate) = (q * micros, units * w * 1_000_000);
        let fits_15_digits = units * 1_000_000 / gcd(units * 1_000_000, micros) <= u128::from(MAX_UNITS);
        if fits_15_digits {
            prop_assert_eq!(advertised_rate, true_rate, "{}: {:?}", &quota, &advertised);
        } else {
            prop_assert!(advertised_rate <= true_rate, "{quota}: {advertised:?}");
        }
        Ok(())
    });
}

#[test]
fn a_saturated_key_gets_the_advertised_rate() {
    for (quota, q, w) in [
        (Quota::from(Bucket::new(Rate::per_second(10)).unwrap().with_burst(1).unwrap()), 10, 1),
        (Bucket::new(Rate::per_second(100)).unwrap().with_burst(5).unwrap().into(), 100, 1),
        (Bucket::new(Rate::new(3, Span::from_secs(2))).unwrap().into(), 3, 2),
        (Bucket::new(Rate::new(3, Span::from_millis(1_500))).unwrap().into(), 6, 3),
        (Bucket::new(Rate::new(7, Span::from_millis(1))).unwrap().into(), 7_000, 1),
        (Bucket::new(Rate::per_minute(60)).unwrap().with_burst(90).unwrap().into(), 90, 90),
        (FixedWindow::epoch(Rate::new(5, Span::from_millis(250))).unwrap().into(), 20, 1),
        (SlidingLog::new(Rate::new(2, Span::from_millis(300))).unwrap().into(), 20, 3),
        (Bucket::new(Rate::new(1, Span::from_days(30))).unwrap().into(), 1, 2_592_000),
    ] {
        let advertised = quota.advertised(START).unwrap();
        assert_eq!((advertised.units, advertised.seconds), (q, w), "{quota}");
        let (mut state, mut now, mut admitted) = (quota.fresh(), START, 0);
        // The initial burst is not part of the sustained rate.
        quota.acquire(&mut state, Amount::UpTo(u64::MAX), now);
        let windows = 40;
        let end = START + Span::from_secs(w * windows);
        while now < end {
            let outcome = quota.step(&mut state, Amount::Exactly(1), now);
            match outcome.retry_after() {
                None => admitted += 1,
                Some(wait) => now = now + wait,
            }
        }
        assert!((q * windows).abs_diff(admitted) <= quota.capacity() + 1, "{quota}: {admitted}");
    }
}

#[test]
fn calendar_windows_advertise_the_length_of_the_present_window() {
    let length = |unit, zone: &str, at: &str| {
        let zoned: jiff::Zoned = format!("{at}[{zone}]").parse().unwrap();
        let now = Timestamp::from_micros(u64::try_from(zoned.timestamp().as_microsecond()).unwrap());
        let window = Window::Calendar(Calendar::new(unit, zone).unwrap());
        let advertised = Quota::from(FixedWindow::new(9, window).unwrap()).advertised(now).unwrap();
        assert_eq!(advertised.units, 9);
        advertised.seconds
    };
    let hours = |hours: u64| hours * 3_600;
    for (unit, zone, at, seconds) in [
        (CalendarUnit::Day, "UTC", "2026-11-16T12:00", hours(24)),
        (CalendarUnit::Day, "Europe/Paris", "2026-03-29T12:00", hours(23)),
        (CalendarUnit::Day, "Europe/Paris", "2026-10-25T12:00", hours(25)),
        (CalendarUnit::Day, "Australia/Lord_Howe", "2026-04-05T12:00", hours(24) + 1_800),
        (CalendarUnit::Week, "Europe/Paris", "2026-03-25T12:00", hours(7 * 24 - 1)),
        (CalendarUnit::Week, "UTC", "2026-03-25T12:00", hours(7 * 24)),
        (CalendarUnit::Month, "UTC", "2026-02-10T00:00", hours(28 * 24)),
        (CalendarUnit::Month, "UTC", "2028-02-10T00:00", hours(29 * 24)),
        (CalendarUnit::Month, "UTC", "2026-11-10T00:00", hours(30 * 24)),
        (CalendarUnit::Month, "America/New_York", "2026-11-10T00:00", hours(30 * 24 + 1)),
        (CalendarUnit::Month, "UTC", "2026-12-31T23:59", hours(31 * 24)),
        (CalendarUnit::Hour, "Asia/Kolkata", "2026-12-31T23:59", hours(1)),
    ] {
        assert_eq!(length(unit, zone, at), seconds, "{unit:?} in {zone} at {at}");
    }
}
