//! Leaky queues: their waits, their order, and the arithmetic of nginx.

use proptest::prelude::*;
use tollgate_core::{
    Adjustment, Algorithm as _, Amount, Bucket, ChargeTimes, Outcome, Queue, Quota, QuotaError, Rate, Rule,
    Span, Timestamp,
};

use crate::model::Exact;
use crate::quotas;
use crate::seed::check;
use crate::trace::{Key, START, takes, wild};

fn queue(rate: Rate, queue: Queue) -> Quota {
    Bucket::new(rate).and_then(|it| it.with_queue(queue)).expect("a valid queue").into()
}

fn of_ten(length: u64) -> Quota {
    queue(Rate::per_second(10), Queue::new(length))
}

#[test]
fn of_a_thousand_requests_at_one_instant_the_first_pass_spaced_by_the_rate() {
    let quota = of_ten(50);
    let mut key = Key::new(&quota);
    for nth in 0..1_000 {
        let outcome = key.take(1);
        assert_eq!(outcome.is_admitted(), nth <= 50, "request {nth}");
        if nth <= 50 {
            assert_eq!(outcome.wait(), Span::from_millis(100 * nth));
            assert_eq!(outcome.remaining, 50 - nth);
        } else {
            assert_eq!(outcome.retry_after(), Some(Span::from_millis(100)));
        }
    }
}

#[test]
fn free_places_start_immediately() {
    let waits = |free| {
        let quota = queue(Rate::per_second(10), Queue::new(5).with_free(free));
        let mut key = Key::new(&quota);
        (0..6).map(|_| key.take(1).wait().as_micros() / 1_000).collect::<Vec<_>>()
    };
    assert_eq!(waits(0), [0, 100, 200, 300, 400, 500]);
    assert_eq!(waits(2), [0, 0, 0, 100, 200, 300]);
    assert_eq!(waits(5), [0; 6], "as `nodelay` in nginx");
    assert_eq!(waits(u64::MAX), [0; 6]);
}

#[test]
fn a_wait_of_exactly_the_bound_is_admitted_and_a_longer_one_is_refused() {
    let quota = queue(Rate::per_second(10), Queue::new(50).with_wait(Span::from_millis(250)));
    let mut key = Key::new(&quota);
    for millis in [0, 100, 200] {
        assert_eq!(key.take(1).wait(), Span::from_millis(millis));
    }
    assert_eq!(key.take(1).retry_after(), Some(Span::from_millis(50)));
    assert_eq!(key.at(key.now + Span::from_micros(49_999)).take(1).retry_after(), Some(Span::from_micros(1)));
    assert_eq!(key.at(key.now + Span::from_millis(50)).take(1).wait(), Span::from_millis(250));
}

#[test]
fn a_request_takes_as_many_places_as_it_costs_and_starts_with_the_first() {
    let quota = of_ten(9);
    let mut key = Key::new(&quota);
    let waits = [4, 3, 3].map(|cost| key.take(cost).wait().as_micros() / 1_000);
    assert_eq!(waits, [0, 400, 700]);
    assert!(!key.take(1).is_admitted());
    assert_eq!(key.ask(Amount::Exactly(0)).wait(), Span::ZERO, "a read does not wait");
}

#[test]
fn admitted_requests_start_in_order_and_within_the_bound() {
    check(600, (quotas::queues(), takes()), |(quota, trace)| {
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only queues") };
        let bound = bucket.queue().and_then(|it| it.wait).unwrap_or(Span::from_micros(u64::MAX));
        let (mut key, mut last) = (Key::new(&quota), Timestamp::EPOCH);
        for (by, act) in trace {
            key.advance(by);
            let Some(outcome) = key.act(act).1.filter(|it| it.units() > 0) else { continue };
            prop_assert!(outcome.wait() <= bound && outcome.wait() <= quota.period());
            let start = key.now + outcome.wait();
            prop_assert!(start >= last, "it starts before another");
            last = start;
        }
        Ok(())
    });
}

/// Rounding of the wait to a microsecond moves a start by less than that.
#[test]
fn no_stretch_starts_more_than_the_rate_and_the_free_places() {
    check(400, (quotas::queues(), takes()), |(quota, trace)| {
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only queues") };
        let free = bucket.queue().map_or(0, |it| it.free.min(1 << 50));
        let rate = Exact::new(bucket.rate().count.into(), bucket.rate().period.as_micros().into());
        let mut key = Key::new(&quota);
        let mut starts = Vec::new();
        for (by, _) in trace {
            key.advance(by);
            for _ in 0..3 {
                let outcome = key.take(1);
                if outcome.is_admitted() {
                    starts.push(i128::from((key.now + outcome.wait()).as_micros()));
                }
            }
        }
        for (first, &from) in starts.iter().enumerate() {
            for (last, &to) in starts.iter().enumerate().skip(first) {
                let started = Exact::from_integer((last - first + 1) as i128);
                let bound =
                    rate * Exact::from_integer(to - from + 1) + Exact::from_integer(i128::from(free) + 1);
                prop_assert!(started <= bound, "{} in {} us", started, to - from);
            }
        }
        Ok(())
    });
}

#[test]
fn a_refused_request_passes_at_retry_after_and_not_one_tick_before() {
    check(600, (quotas::queues(), wild()), |(quota, trace)| {
        let mut key = Key::after(&quota, &trace);
        for cost in [1, quota.capacity()] {
            let Some(wait) = key.take(cost).retry_after() else { continue };
            let then = key.now + wait;
            prop_assert!(!key.at(then.before(Span::from_micros(1))).take(cost).is_admitted());
            prop_assert!(key.at(then).take(cost).is_admitted());
        }
        Ok(())
    });
}

/// The charge of the last take of a key.
fn charge(key: &Key<'_>, outcome: &Outcome) -> ChargeTimes {
    ChargeTimes::of(key.now, outcome)
}

fn leave(key: &mut Key<'_>, charge: ChargeTimes) {
    key.adjust(Adjustment::Refund { units: 1, charge });
}

#[test]
fn the_last_places_that_are_left_go_to_newcomers() {
    let quota = of_ten(5);
    let mut key = Key::new(&quota);
    let taken: Vec<_> = (0..6).map(|_| key.take(1)).collect();
    let charges: Vec<_> = taken.iter().map(|it| charge(&key, it)).collect();
    assert!(!key.take(1).is_admitted());
    let passed = Span::from_millis(50);
    key.now = key.now + passed;
    leave(&mut key, charges[5]);
    let newcomer = key.take(1);
    assert_eq!(newcomer.wait() + passed, taken[5].wait(), "the place of the last");
    assert!(!key.take(1).is_admitted(), "one place, and no more");
    // The last three leave, one after the other, and the next requests take their places.
    for leaving in [charge(&key, &newcomer), charges[4], charges[3]] {
        leave(&mut key, leaving);
    }
    for expected in &taken[3..] {
        assert_eq!(key.take(1).wait() + passed, expected.wait());
    }
    assert!(!key.take(1).is_admitted());
}

#[test]
fn a_place_in_the_middle_that_is_left_passes_unused() {
    let quota = of_ten(5);
    let mut key = Key::new(&quota);
    let charges: Vec<_> = (0..6).map(|_| key.take(1)).map(|it| ChargeTimes::of(START, &it)).collect();
    assert_eq!(key.now, START);
    for &middle in &charges[1..5] {
        leave(&mut key, middle);
        assert!(!key.take(1).is_admitted(), "those behind it keep their times");
    }
    leave(&mut key, charges[5]);
    assert_eq!(key.take(1).wait(), Span::from_millis(500), "no earlier than the places before it");
}

/// The case of the review: callers that leave just before their turn, again and again, and are
/// replaced by others.
#[test]
fn callers_that_cancel_again_and_again_do_not_make_the_others_start_together() {
    let quota = of_ten(10);
    let mut key = Key::new(&quota);
    let (mut waiting, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..56 {
        let outcome = key.take(1);
        if outcome.is_admitted() {
            waiting.push((key.now + outcome.wait(), charge(&key, &outcome)));
        } else {
            let (_, leaving) = waiting.remove(0);
            leave(&mut key, leaving);
            key.now = key.now + Span::from_millis(99);
        }
        starts = waiting.iter().map(|&(start, _)| start).collect();
    }
    starts.sort_unstable();
    for pair in starts.windows(2) {
        assert!(pair[1].since(pair[0]) >= Span::from_millis(100), "{pair:?}");
    }
}

/// Random arrivals and leavers, at any rate: the remaining ones start in order, and spaced by the rate
/// beyond the free places. Rounding of the wait to a microsecond moves a start by less than that.
#[test]
fn requests_that_stay_start_spaced_by_the_rate_whoever_leaves() {
    let steps = prop::collection::vec((0..3u8, any::<u16>()), 1..80);
    check(1_500, (quotas::queues(), steps), |(quota, steps)| {
        let Quota::Bucket(bucket) = &quota else { unreachable!("the strategy yields only queues") };
        let free = i128::from(bucket.queue().map_or(0, |it| it.free.min(1 << 50)));
        let rate = Exact::new(bucket.rate().count.into(), bucket.rate().period.as_micros().into());
        let mut key = Key::new(&quota);
        // The start, and the charge of a request that has not left.
        let mut requests: Vec<(Timestamp, ChargeTimes)> = Vec::new();
        for (act, random) in steps {
            let waiting: Vec<_> = (0..requests.len()).filter(|&at| requests[at].0 > key.now).collect();
            match act {
                0 => key.now = key.now + quarters_of_a_unit(bucket, random),
                1 if !waiting.is_empty() => {
                    // The last one as often as all others together.
                    let at =
                        if random % 2 == 0 { waiting.len() - 1 } else { usize::from(random) % waiting.len() };
                    let (_, leaving) = requests.remove(waiting[at]);
                    leave(&mut key, leaving);
                }
                _ => {
                    let outcome = key.take(1);
                    if outcome.is_admitted() {
                        requests.push((key.now + outcome.wait(), charge(&key, &outcome)));
                    }
                }
            }
        }
        for (first, &(from, _)) in requests.iter().enumerate() {
            for (nth, &(to, _)) in requests[first..].iter().enumerate() {
                prop_assert!(to >= from, "it starts before another");
                let passed = Exact::from_integer(i128::from(to.since(from).as_micros()) + 1);
                let bound = rate * passed + Exact::from_integer(free + 1);
                let started = Exact::from_integer(nth as i128 + 1);
                prop_assert!(started <= bound, "{} start in {}", started, to.since(from));
            }
        }
        Ok(())
    });
}

/// Up to two units of time.
fn quarters_of_a_unit(bucket: &Bucket, random: u16) -> Span {
    let unit = bucket.grains_per_unit() / u64::from(bucket.grains_per_tick());
    Span::from_micros(unit / 4 * u64::from(random % 9) + u64::from(random % 7))
}

/// nginx counts in thousandths of a request and in milliseconds (`ngx_http_limit_req_module.c`).
struct Nginx {
    rate: i64,
    burst: i64,
    delay: i64,
    excess: i64,
    last: Option<i64>,
}

impl Nginx {
    /// Returns the delay in milliseconds, or `None` for a refusal.
    fn request(&mut self, now: i64) -> Option<i64> {
        let excess = match self.last {
            None => 0,
            Some(last) => (self.excess - self.rate * (now - last) / 1_000 + 1_000).max(0),
        };
        if excess > self.burst * 1_000 {
            return None;
        }
        (self.excess, self.last) = (excess, Some(now));
        if excess <= self.delay * 1_000 {
            return Some(0);
        }
        Some((excess - self.delay * 1_000) * 1_000 / self.rate)
    }
}

/// At rates with a whole number of milliseconds per request, nginx does not round.
#[test]
fn a_queue_decides_and_waits_as_nginx_does() {
    let rates = prop::sample::select(vec![1u64, 2, 5, 10, 50, 100, 500, 1_000]);
    let arrivals = prop::collection::vec((0..2u8, 0..700u64), 1..80);
    check(1_500, (rates, 0..12u64, 0..14u64, arrivals), |(rate, burst, delay, arrivals)| {
        let quota = queue(Rate::per_second(rate), Queue::new(burst).with_free(delay));
        let mut key = Key::new(&quota);
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut nginx = Nginx {
            rate: signed(rate * 1_000),
            burst: signed(burst),
            delay: signed(delay),
            excess: 0,
            last: None,
        };
        for (is_later, millis) in arrivals {
            key.now = key.now + Span::from_millis(if is_later == 1 { millis } else { 0 });
            let outcome = key.take(1);
            let ours = outcome.is_admitted().then(|| signed(outcome.wait().as_micros() / 1_000));
            prop_assert_eq!(ours, nginx.request(signed(key.now.as_micros() / 1_000)));
        }
        Ok(())
    });
}

#[test]
fn queues_of_one_rate_share_their_states() {
    let rule = |queued| Rule::new("queue", queue(Rate::per_second(10), queued)).id;
    let first = rule(Queue::new(50));
    for other in [Queue::new(5), Queue::new(599).with_free(3), Queue::new(50).with_wait(Span::from_secs(2))] {
        assert_eq!(rule(other), first, "{other}");
    }
    assert_ne!(rule(Queue::new(600)), first, "more than a minute");
    assert_ne!(Rule::new("queue", queue(Rate::per_second(20), Queue::new(50))).id, first);
    let bucket = Bucket::new(Rate::per_second(10)).and_then(|it| it.with_burst(51)).unwrap();
    assert_ne!(Rule::new("queue", bucket).id, first);
}

#[test]
fn newcomers_of_a_shorter_queue_do_not_overtake_those_who_wait() {
    let (long, short) = (of_ten(100), of_ten(5));
    let mut key = Key::new(&long);
    let last = (0..101).map(|_| key.take(1).wait()).last().unwrap();
    let mut shorter = Key::new(&short).at(key.now);
    shorter.state = key.state.clone();
    let wait = shorter.take(1).retry_after().unwrap();
    shorter.now = shorter.now + wait;
    let newcomer = shorter.take(1);
    assert_eq!(key.now + last + Span::from_millis(100), shorter.now + newcomer.wait());
}

#[test]
fn a_huge_step_back_costs_at_most_two_minutes_or_two_periods() {
    check(400, (quotas::queues(), wild()), |(quota, trace)| {
        let mut key = Key::after(&quota, &trace);
        key.take(1);
        let mut back = key.at(key.now.before(Span::from_days(3_000)));
        let wait = back.take(1).retry_after().unwrap_or_default();
        let most = quota.period().max(Span::from_minutes(1));
        prop_assert!(wait <= most + most, "waits {}", wait);
        Ok(())
    });
}

#[test]
fn queues_that_cannot_be_served_are_refused() {
    let hourly = Bucket::new(Rate::per_hour(1)).unwrap();
    assert_eq!(hourly.with_queue(Queue::new(100_000)), Err(QuotaError::TooLong));
    assert_eq!(hourly.with_queue(Queue::new(u64::MAX)), Err(QuotaError::TooMany));
    let bounded = hourly.with_queue(Queue::new(u64::MAX).with_wait(Span::from_hours(2))).unwrap();
    assert_eq!(bounded.capacity(), 3, "the wait bounds the queue");
    assert_eq!(hourly.with_queue(Queue::new(0)).unwrap().capacity(), 1);
}
