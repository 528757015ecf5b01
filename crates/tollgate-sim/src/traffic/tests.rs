//! Shapes have the properties that they claim, and are reproducible.

use proptest::prelude::*;
use tollgate::{Rate, Span};

use super::*;

/// Returns the arrivals of a flow that admits every request.
fn arrivals(traffic: &Traffic) -> Vec<Arrival> {
    traffic.start().collect()
}

/// Returns the arrivals of a flow that refuses every request before a time after the start.
fn refused_until(traffic: &Traffic, open_after: Span, retry_after: Span) -> Vec<Arrival> {
    let mut flow = traffic.start();
    let open_at = flow.begin() + open_after;
    let mut seen = Vec::new();
    while let Some(arrival) = flow.next() {
        let admitted = arrival.at >= open_at;
        let next = flow.after_reply(&arrival, admitted, Some(retry_after));
        assert_eq!(admitted, next == Next::Done);
        seen.push(arrival);
    }
    seen
}

/// Returns the most arrivals in any period of this length.
fn peak(arrivals: &[Arrival], stretch: Span) -> usize {
    let ends = |from: usize| arrivals.partition_point(|it| it.at < arrivals[from].at + stretch);
    (0..arrivals.len()).map(|from| ends(from) - from).max().unwrap_or(0)
}

#[test]
fn every_shape_has_the_load_it_claims() {
    for shape in Shape::ALL {
        for (by, clients) in [(By::Client, 1), (By::Client, 7), (By::Everybody, 7)] {
            for load in [0.5, 1.0, 3.0] {
                let duration = Span::from_minutes(80);
                let traffic =
                    Traffic { load, clients, by, duration, ..Traffic::new(shape, Rate::per_minute(100)) };
                let budgets = if by == By::Client { f64::from(clients) } else { 1.0 };
                let claimed = budgets * load * 100.0 * 80.0;
                assert!((traffic.expected() - claimed).abs() < 1e-6);
                #[allow(clippy::cast_precision_loss)]
                let sent = arrivals(&traffic).len() as f64;
                assert!((sent / claimed - 1.0).abs() < 0.06, "{shape:?} {by:?} {load}: {sent} of {claimed}");
            }
        }
    }
}

#[test]
fn edge_bursts_are_on_both_sides_of_every_second_window_end() {
    let traffic = Traffic { clients: 3, ..Traffic::new(Shape::Edge, Rate::new(10, Span::from_secs(20))) };
    let window = 20_000_000;
    let (mut before, mut behind) = (0, 0);
    for arrival in arrivals(&traffic) {
        let within = arrival.at.as_micros() % window;
        if within >= window * 95 / 100 {
            before += 1;
        } else {
            assert!(within < window * 5 / 100, "{within}");
            behind += 1;
        }
    }
    assert_eq!((before, behind), (3 * 10 * 5, 3 * 10 * 5), "five borders in ten windows");
}

#[test]
fn a_flash_crowd_rises_and_decays() {
    let duration = Span::from_minutes(90);
    let traffic = Traffic { duration, ..Traffic::new(Shape::FlashCrowd, Rate::per_minute(100)) };
    let begin = traffic.start().begin();
    let between = |from: u64, to: u64| {
        let inside =
            |it: &&Arrival| (from * 60_000_000..to * 60_000_000).contains(&it.at.since(begin).as_micros());
        arrivals(&traffic).iter().filter(inside).count() as u64 / (to - from)
    };
    assert!((15..35).contains(&between(0, 30)), "{}", between(0, 30));
    assert!(between(30, 33) > 450, "{}", between(30, 33));
    assert!((20..50).contains(&between(75, 90)), "{}", between(75, 90));
}

#[test]
fn a_ramp_rises_to_twice_the_load() {
    let traffic = Traffic::new(Shape::Ramp, Rate::per_minute(600));
    let begin = traffic.start().begin();
    let in_minute = |minute: u64| {
        arrivals(&traffic).iter().filter(|it| it.at.since(begin).as_micros() / 60_000_000 == minute).count()
    };
    assert!((50..70).contains(&in_minute(0)), "{}", in_minute(0));
    assert!((1120..1160).contains(&in_minute(9)), "{}", in_minute(9));
}

#[test]
fn clients_that_honor_retry_after_never_retry_early() {
    for jitter in [false, true] {
        let retry = Retry { jitter, ..Retry::default() };
        let traffic = Traffic { retry, ..Traffic::new(Shape::RetryStorm, Rate::per_minute(10)) };
        let seen = refused_until(&traffic, Span::from_minutes(3), Span::from_millis(6_500));
        let firsts = seen.iter().filter(|it| it.tries == 0).count();
        assert!(seen.len() > firsts, "no client retried");
        for arrival in seen.iter().filter(|it| it.tries == 1) {
            // Whole seconds: the wait is rounded up.
            assert!(arrival.at.since(arrival.first) >= Span::from_secs(7), "{arrival:?}");
        }
    }
}

#[test]
fn jitter_lowers_the_peaks_of_a_storm() {
    for honours_retry_after in [true, false] {
        let with = |jitter: bool| {
            let retry = Retry { honours_retry_after, jitter, ..Retry::default() };
            let rate = Rate::per_minute(100);
            let traffic = Traffic { retry, ..Traffic::new(Shape::RetryStorm, rate) };
            let seen = refused_until(&traffic, Span::from_minutes(1), Span::from_secs(20));
            let back: Vec<_> = seen.into_iter().filter(|it| it.tries > 0).collect();
            peak(&back, Span::from_millis(100))
        };
        let (herd, spread) = (with(false), with(true));
        assert!(spread * 4 < herd, "{spread} with jitter, {herd} without");
    }
}

#[test]
fn no_request_exceeds_its_attempts() {
    let retry = Retry { attempts: 3, ..Retry::default() };
    let traffic = Traffic { retry, ..Traffic::new(Shape::RetryStorm, Rate::per_minute(5)) };
    let seen = {
        let mut flow = traffic.start();
        let (mut seen, mut gave_up) = (Vec::new(), 0);
        while let Some(arrival) = flow.next() {
            gave_up +=
                u64::from(flow.after_reply(&arrival, false, Some(Span::from_secs(1))) == Next::GivesUp);
            seen.push(arrival);
        }
        assert!(gave_up > 0);
        seen
    };
    assert_eq!(seen.iter().map(|it| it.tries).max(), Some(2));
}

#[test]
fn invalid_traffic_is_rejected() {
    let good = Traffic::new(Shape::Steady, Rate::per_minute(10));
    assert_eq!(good.check(), Ok(()));
    for (bad, why) in [
        (Traffic { clients: 0, ..good }, TrafficError::Clients),
        (Traffic { clients: MAX_CLIENTS + 1, ..good }, TrafficError::Clients),
        (Traffic { load: f64::NAN, ..good }, TrafficError::Load),
        (Traffic { load: -1.0, ..good }, TrafficError::Load),
        (Traffic { load: f64::INFINITY, ..good }, TrafficError::Load),
        (Traffic { duration: Span::ZERO, ..good }, TrafficError::Duration),
        (Traffic { duration: Span::from_micros(u64::MAX), ..good }, TrafficError::Duration),
        (Traffic { retry: Retry { attempts: 0, ..good.retry }, ..good }, TrafficError::Attempts),
    ] {
        assert_eq!(bad.check(), Err(why));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_flow_is_in_order_within_its_time_and_the_same_each_time(
        shape in 0..Shape::ALL.len(),
        count in 1u64..50,
        period in 1u64..10_000_000,
        load in 0.05f64..4.0,
        clients in 1u32..6,
        together: bool,
        seed: u64,
    ) {
        let rate = Rate::new(count, Span::from_micros(period));
        let by = if together { By::Everybody } else { By::Client };
        let traffic = Traffic { load, clients, by, seed, ..Traffic::new(Shape::ALL[shape], rate) };
        let all = arrivals(&traffic);
        prop_assert!(all.is_sorted_by_key(|it| it.at));
        let begin = traffic.start().begin();
        prop_assert_eq!(begin.as_micros() % period, 0);
        prop_assert!(all.iter().all(|it| it.at >= begin && it.at < begin + traffic.duration));
        prop_assert_eq!(all, arrivals(&traffic));
    }
}
