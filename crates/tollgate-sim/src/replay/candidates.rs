//! Chooses the other numbers that are tried for a limit.
//!
//! The curve goes from a tenth of the limit's rate to ten times as much, with the burst in proportion, and over
//! bursts at the limit's rate. For proposals, a finer and wider grid of round numbers is tried too, so that every
//! proposal was tried exactly as it is printed.
//!
//! Not here: trying them (`curve`), choosing a proposal (`suggest`).

use tollgate::Quota;

use super::amount;

/// Rates of a curve, in percent of the limit's own.
const CURVE_PERCENT: [u64; 13] = [10, 20, 30, 50, 70, 85, 100, 120, 150, 200, 300, 500, 1_000];
/// Bursts of a curve, in percent of the limit's own. Fewer points are enough.
const BURST_PERCENT: [u64; 7] = [10, 20, 50, 100, 200, 500, 1_000];
/// Range of the grid below and above the limit's own number, as a factor.
const GRID_FACTOR: u64 = 64;
/// Round numbers within one power of ten, in tenths: about 10 % apart.
const ROUND_NUMBERS: [u64; 24] =
    [10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 40, 43, 47, 50, 56, 60, 68, 75, 80, 90];

/// The number that a candidate varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// The rate, with the burst in proportion.
    Rate,
    /// The burst.
    Burst,
}

/// Numbers that are tried for a limit.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) axis: Axis,
    /// The count of the first window, or the burst.
    pub(super) value: u64,
    /// Quotas, one per window.
    pub(super) quotas: Vec<Quota>,
    /// Whether it is a point of the curve.
    pub(super) on_curve: bool,
    /// Whether it may be proposed: a point of the grid, or the limit's own numbers.
    pub(super) is_nice: bool,
}

/// All candidates of one limit.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    /// Sorted by axis, then by value.
    pub(super) all: Vec<Candidate>,
    /// Quotas that are no larger than any candidate in rate and burst: all candidates admit every request that these
    /// admit.
    pub(super) floor: Vec<Quota>,
    /// The limit's own count and burst.
    pub(super) own: (u64, u64),
}

impl Candidates {
    /// Returns the candidates for these windows, including the grid of proposals if `grid` is set. `None` if the
    /// limit has no numbers to vary (slots).
    pub(super) fn of(own: &[Quota], grid: bool) -> Option<Self> {
        let first = own.first()?;
        let own_count = amount::count(first).filter(|&count| count > 0)?;
        let own_burst = first.capacity();
        let mut all = Vec::new();
        let mut add = |axis, value, on_curve| {
            let quotas = match axis {
                Axis::Rate => scaled(own, value, own_count, on_curve),
                Axis::Burst => amount::with_count(first, own_count, value).map(|quota| vec![quota]),
            };
            all.extend(quotas.map(|quotas| {
                let is_nice = !on_curve || quotas == own;
                Candidate { axis, value, quotas, on_curve, is_nice }
            }));
        };
        let has_burst = matches!(own, [Quota::Bucket(it)] if it.queue().is_none());
        let axes = [(Axis::Rate, own_count, &CURVE_PERCENT[..]), (Axis::Burst, own_burst, &BURST_PERCENT)];
        for (axis, own, percent) in axes.into_iter().take(if has_burst { 2 } else { 1 }) {
            for &percent in percent {
                add(axis, rounded(own, percent, 100), true);
            }
            if grid {
                nice(own.div_ceil(GRID_FACTOR), own.saturating_mul(GRID_FACTOR))
                    .for_each(|value| add(axis, value, false));
            }
        }
        all.sort_by_key(|it| (it.axis == Axis::Burst, it.value, !it.on_curve));
        all.dedup_by(|later, first| {
            let same = (later.axis, &later.quotas) == (first.axis, &first.quotas);
            first.is_nice |= same && later.is_nice;
            same
        });
        let least = |axis| all.iter().filter(|it| it.axis == axis).map(|it| it.value).min();
        let count = least(Axis::Rate)?;
        let burst = all.iter().filter_map(|it| it.quotas.first()).map(Quota::capacity).min()?;
        let floor = if has_burst {
            vec![amount::with_count(first, count.min(own_count), burst)?]
        } else {
            scaled(own, count.min(own_count), own_count, true)?
        };
        Some(Self { all, floor, own: (own_count, own_burst) })
    }
}

/// Scales the windows of a limit from a count of `own` to `count`, with the burst in proportion.
fn scaled(windows: &[Quota], count: u64, own: u64, exactly: bool) -> Option<Vec<Quota>> {
    let each = windows.iter().enumerate().map(|(place, quota)| {
        let counted = amount::count(quota)?;
        let units = if place == 0 { count } else { rounded(counted, count, own) };
        let burst = match quota.capacity() {
            same if same == counted => units,
            burst if exactly => rounded(burst, count, own),
            burst => nice_from(rounded(burst, count, own)),
        };
        amount::with_count(quota, units, burst)
    });
    each.collect()
}

/// Returns `number · by / of`, rounded to the nearest, and at least 1.
fn rounded(number: u64, by: u64, of: u64) -> u64 {
    let product = u128::from(number) * u128::from(by) + u128::from(of / 2);
    u64::try_from(product / u128::from(of.max(1))).unwrap_or(u64::MAX).max(1)
}

/// Returns the round numbers in a range.
fn nice(from: u64, to: u64) -> impl Iterator<Item = u64> {
    let mut next = nice_from(from);
    std::iter::from_fn(move || {
        let this = next;
        next = nice_from(this.saturating_add(1));
        (this <= to && this < next).then_some(this)
    })
}

/// Returns the smallest round number that is at least `number`.
fn nice_from(number: u64) -> u64 {
    if number <= 10 {
        return number.max(1);
    }
    let mut ten = 1_u64;
    while number / ten >= 100 {
        ten = ten.saturating_mul(10);
    }
    // Keep two digits and round up.
    let digits = number.div_ceil(ten);
    let found = ROUND_NUMBERS.into_iter().find(|&nice| nice >= digits).unwrap_or(100);
    found.saturating_mul(ten)
}

#[cfg(test)]
mod tests {
    use tollgate::{Bucket, FixedWindow};

    use super::*;

    fn bucket(text: (u64, u64)) -> Quota {
        Bucket::new(tollgate::Rate::per_minute(text.0)).unwrap().with_burst(text.1).unwrap().into()
    }

    #[test]
    fn round_numbers_are_never_below_the_original() {
        for (number, expected) in [
            (1, 1),
            (7, 7),
            (10, 10),
            (14, 15),
            (91, 100),
            (100, 100),
            (101, 110),
            (1_234, 1_300),
            (9_001, 10_000),
        ] {
            assert_eq!(nice_from(number), expected, "{number}");
        }
        let all: Vec<_> = nice(8, 30).collect();
        assert_eq!(all, [8, 9, 10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30]);
    }

    #[test]
    fn a_curve_contains_the_own_numbers_of_the_limit_and_ascends() {
        for own in [
            bucket((100, 20)),
            bucket((1, 1)),
            FixedWindow::epoch(tollgate::Rate::per_hour(7)).unwrap().into(),
        ] {
            let tried = Candidates::of(std::slice::from_ref(&own), true).unwrap();
            for axis in [Axis::Rate, Axis::Burst] {
                let of_axis: Vec<_> = tried.all.iter().filter(|it| it.axis == axis).collect();
                let has_axis = axis == Axis::Rate || matches!(own, Quota::Bucket(_));
                assert_eq!(!of_axis.is_empty(), has_axis, "{own}");
                assert!(of_axis.windows(2).all(|pair| pair[0].value <= pair[1].value));
                assert!(!has_axis || of_axis.iter().any(|it| it.quotas[0] == own && it.on_curve), "{own}");
            }
            let floor = &tried.floor[0];
            for tried in &tried.all {
                assert!(tried.quotas[0].capacity() >= floor.capacity(), "{own}: {:?}", tried.quotas);
                assert!(amount::count(&tried.quotas[0]) >= amount::count(floor), "{own}: {:?}", tried.quotas);
            }
        }
    }

    #[test]
    fn windows_keep_their_proportion() {
        let own: Vec<Quota> = [tollgate::Rate::per_second(10), tollgate::Rate::per_hour(1_000)]
            .map(|rate| FixedWindow::epoch(rate).unwrap().into())
            .to_vec();
        let tried = Candidates::of(&own, false).unwrap();
        let amounts: Vec<_> = tried.all.iter().map(|it| amount::all_written(&it.quotas)).collect();
        assert!(amounts.contains(&"20/second and 2000/hour".to_owned()), "{amounts:?}");
        assert_eq!(amounts[0], "1/second and 100/hour");
    }
}
