//! Random quotas of every kind, with a preference for unusual numbers.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::{
    Algorithm as _, Bucket, Calendar, CalendarUnit, FixedWindow, Queue, Quota, Rate, SlidingLog,
    SlidingParts, SlidingWindow, Span, Window,
};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const MAX_PERIOD_US: u64 = 1 << 47;

/// Rates with no short decimal form, at the bounds, or on both sides of one unit per tick.
const ODD: [(u64, u64); 16] = [
    (7, 60 * SECOND),
    (1, 30 * DAY),
    (3_000_000, SECOND),
    (10, SECOND),
    (1_000_003, SECOND),
    (4_294_967_291, SECOND),
    (7_919, 13 * SECOND),
    (3, 7),
    (7, 3),
    (1, 1),
    (5, 1),
    (1, MAX_PERIOD_US),
    ((1 << 32) - 1, MAX_PERIOD_US),
    (1 << 48, 1 << 20),
    (997, MAX_PERIOD_US - 1),
    (100, 60 * SECOND),
];

fn rate() -> impl Strategy<Value = Rate> {
    let odd = select(&ODD[..]);
    let any = (0..40u32, 0..47u32).prop_flat_map(|(count, period)| (1..=1u64 << count, 1..=1u64 << period));
    prop_oneof![3 => odd, 1 => any].prop_map(|(count, period)| Rate::new(count, Span::from_micros(period)))
}

/// A limit small enough to reach, over any period.
fn small_rate(most: u64) -> impl Strategy<Value = Rate> {
    (rate(), 1..=most).prop_map(move |(rate, count)| Rate::new(count.min(rate.count), rate.period))
}

pub(crate) fn buckets() -> impl Strategy<Value = Quota> {
    let burst = prop_oneof![Just(None), (1..=10u64).prop_map(Some), (1..=1u64 << 40).prop_map(Some)];
    (rate(), burst).prop_filter_map("a valid rate", |(rate, burst)| {
        let bucket = Bucket::new(rate).ok()?;
        let burst = burst.unwrap_or(bucket.capacity());
        bucket.with_burst(burst).or_else(|_| bucket.with_burst(1)).ok().map(Quota::from)
    })
}

/// Leaky queues, short and long, some of which refuse because of the wait.
pub(crate) fn queues() -> impl Strategy<Value = Quota> {
    let numbers = || prop_oneof![3 => 0..=20u64, 1 => 0..=1u64 << 40, 1 => Just(u64::MAX)];
    let wait = prop_oneof![2 => Just(None), 3 => (0..40u32, proptest::num::u64::ANY).prop_map(Some)];
    (rate(), numbers(), wait, numbers()).prop_filter_map("a valid queue", |(rate, length, wait, free)| {
        let wait = wait.map(|(bits, some)| Span::from_micros(some % (1 << bits)));
        Bucket::new(rate).ok()?.with_queue(Queue { length, wait, free }).ok().map(Quota::from)
    })
}

pub(crate) fn fixed_windows() -> impl Strategy<Value = Quota> {
    let plain = |make: fn(Rate) -> Result<FixedWindow, _>| {
        prop_oneof![rate(), small_rate(20)]
            .prop_map(move |rate| Quota::from(make(rate).expect("a valid rate")))
    };
    prop_oneof![plain(FixedWindow::epoch), plain(FixedWindow::anchored), calendar_windows()]
}

/// Windows that count beyond their limit, which may be zero.
pub(crate) fn tallies() -> impl Strategy<Value = Quota> {
    let windows = (rate(), calendars(), 0..3u8).prop_map(|(rate, calendar, kind)| match kind {
        0 => Window::Epoch(rate.period),
        1 => Window::Anchored(rate.period),
        _ => Window::Calendar(calendar),
    });
    let limits = prop_oneof![0..=20u64, Just(1 << 48), 0..=1u64 << 40];
    (limits, windows)
        .prop_map(|(limit, window)| FixedWindow::tally(limit, window).expect("a valid limit").into())
}

fn calendar_windows() -> impl Strategy<Value = Quota> {
    (1..=20u64, calendars()).prop_map(|(limit, calendar)| {
        Quota::from(FixedWindow::new(limit, Window::Calendar(calendar)).expect("a valid limit"))
    })
}

pub(crate) fn calendars() -> impl Strategy<Value = Calendar> {
    let units = [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month];
    let zones = [
        "UTC",
        "Europe/Paris",
        "America/New_York",
        "America/Havana",
        "America/Santiago",
        "Asia/Beirut",
        "Asia/Kathmandu",
        "Atlantic/Azores",
        "Australia/Lord_Howe",
        "Antarctica/Troll",
        "Pacific/Auckland",
    ];
    (select(units.to_vec()), select(zones.to_vec()))
        .prop_map(|(unit, zone)| Calendar::new(unit, zone).expect("a zone that exists"))
}

pub(crate) fn sliding_windows() -> impl Strategy<Value = Quota> {
    prop_oneof![rate(), small_rate(20), small_rate(1_000)].prop_map(|rate| {
        SlidingWindow::new(Rate::new(rate.count.min(1 << 30), rate.period)).expect("a valid rate").into()
    })
}

pub(crate) fn sliding_parts() -> impl Strategy<Value = Quota> {
    any_parts().prop_map(Quota::from)
}

pub(crate) fn strict_parts() -> impl Strategy<Value = Quota> {
    any_parts().prop_map(|it| it.strict().into())
}

fn any_parts() -> impl Strategy<Value = SlidingParts> {
    let parts = prop_oneof![2..=3u32, Just(7), 2..=64u32];
    let rate = prop_oneof![rate(), small_rate(20), small_rate(1_000)];
    (rate, parts).prop_map(|(rate, parts)| {
        let rate = Rate::new(rate.count.min(1 << 30), rate.period);
        SlidingParts::new(rate, parts).expect("a valid rate")
    })
}

pub(crate) fn sliding_logs() -> impl Strategy<Value = Quota> {
    prop_oneof![small_rate(5), small_rate(60)]
        .prop_map(|rate| SlidingLog::new(rate).expect("a valid rate").into())
}

/// Any quota that counts units.
pub(crate) fn any() -> impl Strategy<Value = Quota> {
    prop_oneof![4 => whole(), 1 => sliding_parts(), 1 => strict_parts()]
}

/// Quotas with lossless states: a refund leaves no trace.
pub(crate) fn whole() -> impl Strategy<Value = Quota> {
    prop_oneof![buckets(), fixed_windows(), sliding_windows(), sliding_logs()]
}
