//! No algorithm admits more than its definition allows, in any stretch.
//!
//! Only the admitted units are checked: neither states nor models are consulted.

use proptest::prelude::*;
use tollgate_core::{Algorithm as _, Quota, Timestamp, Window};

use crate::model::Exact;
use crate::quotas;
use crate::seed::check;
use crate::trace::{Key, Trace, takes};

/// Times and units.
type Admission = Vec<(i128, i128)>;

fn admitted(quota: &Quota, trace: Trace) -> Admission {
    let mut key = Key::new(quota);
    let mut admitted = Vec::new();
    for (by, act) in trace {
        key.advance(by);
        if let (_, Some(outcome)) = key.act(act) {
            admitted.push((key.now.as_micros().into(), outcome.units().into()));
        }
    }
    admitted
}

fn units<'a>(admitted: impl IntoIterator<Item = &'a (i128, i128)>) -> i128 {
    admitted.into_iter().map(|&(_, units)| units).sum()
}

/// Returns the largest number of units in any stretch `(t - width, t]`.
fn most_within(admitted: &Admission, width: i128) -> i128 {
    let ends = admitted.iter().map(|&(at, _)| at);
    let within = |end| units(admitted.iter().filter(|&&(at, _)| end - width < at && at <= end));
    ends.map(within).max().unwrap_or(0)
}

#[test]
fn a_bucket_admits_its_burst_and_what_flowed_in() {
    check(400, (quotas::buckets(), takes()), |(quota, trace)| {
        let admitted = admitted(&quota, trace);
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only buckets") };
        let rate = Exact::new(bucket.rate().count.into(), bucket.rate().period.as_micros().into());
        for (first, &(from, _)) in admitted.iter().enumerate() {
            for (last, &(to, _)) in admitted.iter().enumerate().skip(first) {
                let flowed_in = rate * Exact::from_integer(to - from);
                let bound = flowed_in + Exact::from_integer(bucket.capacity().into());
                let passed = Exact::from_integer(units(&admitted[first..=last]));
                prop_assert!(passed <= bound, "{} in {} µs", passed, to - from);
            }
        }
        Ok(())
    });
}

#[test]
fn a_fixed_window_admits_its_limit_in_each_window() {
    check(400, (quotas::fixed_windows(), takes()), |(quota, trace)| {
        let mut admitted = admitted(&quota, trace);
        let Quota::FixedWindow(limit) = &quota else { unreachable!("the strategy yields only windows") };
        admitted.retain(|&(_, units)| units > 0);
        let mut rest = admitted.as_slice();
        while let Some(&(from, _)) = rest.first() {
            // Windows follow the clock, or open with the first unit after the last window closed.
            let from = Timestamp::from_micros(u64::try_from(from).unwrap_or(0));
            let closes = i128::from(limit.window().closes(from).as_micros());
            let (inside, later) = rest.split_at(rest.partition_point(|&(at, _)| at < closes));
            prop_assert!(units(inside) <= limit.capacity().into());
            rest = later;
        }
        if let Window::Epoch(length) | Window::Anchored(length) = limit.window() {
            let twice = 2 * i128::from(limit.capacity());
            prop_assert!(most_within(&admitted, length.as_micros().into()) <= twice);
        }
        Ok(())
    });
}

#[test]
fn a_sliding_log_admits_its_limit_in_any_stretch() {
    check(400, (quotas::sliding_logs(), takes()), |(quota, trace)| {
        let admitted = admitted(&quota, trace);
        prop_assert!(most_within(&admitted, quota.period().as_micros().into()) <= quota.capacity().into());
        Ok(())
    });
}

#[test]
fn a_strict_window_in_parts_admits_its_limit_in_any_stretch() {
    check(1_500, (quotas::strict_parts(), takes()), |(quota, trace)| {
        let admitted = admitted(&quota, trace);
        prop_assert!(most_within(&admitted, quota.period().as_micros().into()) <= quota.capacity().into());
        Ok(())
    });
}

#[test]
fn a_sliding_window_keeps_its_formula_and_stays_below_twice_its_limit() {
    check(400, (quotas::sliding_windows(), takes()), |(quota, trace)| {
        let admitted = admitted(&quota, trace);
        let (limit, period) = (i128::from(quota.capacity()), i128::from(quota.period().as_micros()));
        for (last, &(now, _)) in admitted.iter().enumerate().filter(|(_, (_, units))| *units > 0) {
            let here = now / period;
            let spent_in =
                |window| units(admitted[..=last].iter().filter(move |&&(at, _)| at / period == window));
            let left = (here + 1) * period - now;
            prop_assert!(spent_in(here - 1) * left + spent_in(here) * period <= limit * period);
        }
        prop_assert!(most_within(&admitted, period) < 2 * limit);
        Ok(())
    });
}
