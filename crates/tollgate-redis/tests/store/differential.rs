//! Seeded random stories, told to Redis and to the core: the answers are the same.
//!
//! Every algorithm, numbers from one to the largest there are, batches of several
//! checks, clocks that stand, jump and step back.

use std::time::Duration;

use redis::{Cmd, Value};
use tollgate_core::{
    Adjustment, Bucket, Concurrency, Demand, FixedWindow, Overdraft, Owner, Quota, QuotaError, Rate, Rule,
    SlidingLog, SlidingParts, SlidingWindow, Span, Timestamp, Window,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{Check, Store};
use tollgate_testkit::Redis;

use crate::model::Model;
use crate::support::patient;

const KEYS: [&[u8]; 3] = [b"ann", b"bob", b"{c}\0\xff"];

fn period(dice: &mut fastrand::Rng) -> Span {
    Span::from_micros(match dice.u8(..4) {
        0 => dice.u64(1..2_000),
        1 => 1_000_000 * dice.u64(1..4_000),
        2 => dice.u64(1_000_000..100_000_000_000),
        _ => dice.u64(1..1 << 47),
    })
}

/// Small numbers as often as large ones.
fn up_to_bits(bits: u32, dice: &mut fastrand::Rng) -> u64 {
    let bits = dice.u32(1..bits);
    dice.u64(1..1 << bits)
}

fn parts(rate: Rate, parts: u32, strict: bool) -> Result<Quota, QuotaError> {
    SlidingParts::new(rate, parts).map(|it| if strict { it.strict() } else { it }.into())
}

fn quota(dice: &mut fastrand::Rng) -> Quota {
    loop {
        let period = period(dice);
        let count = if dice.bool() { dice.u64(1..20) } else { up_to_bits(48, dice) };
        let rate = Rate::new(count, period);
        let small = Rate::new(dice.u64(1..40), period);
        let made = match dice.u8(..12) {
            0..3 => {
                let burst = if dice.bool() { count } else { up_to_bits(40, dice) };
                Bucket::new(rate).and_then(|it| it.with_burst(burst)).map(Quota::from)
            }
            3 => FixedWindow::epoch(rate).map(Quota::from),
            4 => FixedWindow::anchored(rate).map(Quota::from),
            5 => SlidingWindow::new(rate).map(Quota::from),
            10 => parts(small, dice.u32(2..5), dice.bool()),
            11 => parts(rate, dice.u32(2..65), dice.bool()),
            6 => SlidingLog::new(small).map(Quota::from),
            8 => FixedWindow::tally(count - 1, Window::Epoch(period)).map(Quota::from),
            9 => Bucket::new(rate).map(|it| it.shared().into()),
            _ => Concurrency::new(dice.u32(1..5), period).map(Quota::from),
        };
        if let Ok(quota) = made {
            return quota;
        }
    }
}

/// Another rule of the same id, where numbers may differ.
fn twin(rule: &Rule, dice: &mut fastrand::Rng) -> Option<Rule> {
    let quota: Quota = match &rule.quota {
        Quota::FixedWindow(it) if it.is_tally() => {
            FixedWindow::tally(dice.u64(..40), it.window().clone()).ok()?.into()
        }
        Quota::Bucket(it) if it.is_shared() => {
            Bucket::new(Rate::new(dice.u64(1..40), period(dice))).ok()?.shared().into()
        }
        _ => return None,
    };
    Some(Rule::new(&rule.name, quota)).filter(|twin| twin.id == rule.id)
}

/// One state by two numbers in one batch travels in parts, and what others see meanwhile is
/// not for a model to say (`conformance`).
fn is_for_one_call(checks: &[Check<'_>]) -> bool {
    let clash = |a: &Check<'_>, b: &Check<'_>| {
        a.rule.id == b.rule.id && a.key == b.key && a.rule.quota != b.rule.quota
    };
    !checks.iter().any(|a| checks.iter().any(|b| clash(a, b)))
}

fn units(quota: &Quota, dice: &mut fastrand::Rng) -> u64 {
    let most = quota.capacity();
    match dice.u8(..8) {
        0 => 0,
        1 => most,
        2 => most + dice.u64(1..3),
        3 => most / 2 + 1,
        // A log has a member for each unit: many are slow and say no more than some.
        _ => dice.u64(..=most.min(50)),
    }
}

fn check<'a>(rules: &'a [Rule], dice: &mut fastrand::Rng) -> Check<'a> {
    let rule = &rules[dice.usize(..rules.len())];
    let units = units(&rule.quota, dice);
    let demand = match (&rule.quota, dice.u8(..10)) {
        (Quota::Concurrency(_), 1..) | (_, 0) => Demand::Slot(Owner(dice.u128(..6) << 90)),
        (_, 1 | 2) => Demand::UpTo(units),
        _ => Demand::Exactly(units),
    };
    let key = KEYS[dice.usize(..KEYS.len())];
    Check { rule, key, demand, binding: dice.u8(..6) > 0, count_denied: dice.u8(..8) == 0 }
}

fn adjustment(rule: &Rule, now: Timestamp, dice: &mut fastrand::Rng) -> Adjustment {
    let units = units(&rule.quota, dice);
    match dice.u8(..10) {
        0..3 => {
            let ago = Span::from_micros(dice.u64(..=2 * rule.quota.period().as_micros()));
            Adjustment::Refund { units, taken_at: if dice.bool() { now } else { now.before(ago) } }
        }
        3 | 4 => Adjustment::Grant { units },
        5 => Adjustment::Charge { units, overdraft: Overdraft::None },
        6 => Adjustment::Charge { units, overdraft: Overdraft::OneCapacity },
        _ if !matches!(rule.quota, Quota::Concurrency(_)) => Adjustment::Reset,
        7 => Adjustment::Reset,
        _ => Adjustment::Release { owner: Owner(dice.u128(..6) << 90) },
    }
}

/// The next instant: soon, a period later, or back.
fn later(now: Timestamp, rules: &[Rule], dice: &mut fastrand::Rng) -> Timestamp {
    let period = rules[dice.usize(..rules.len())].quota.period().as_micros();
    let by = Span::from_micros(match dice.u8(..8) {
        0 => 0,
        1 => dice.u64(..100),
        2 => period,
        _ => dice.u64(..=period) / dice.u64(1..50),
    });
    match dice.u8(..20) {
        0 => now.before(Span::from_micros(dice.u64(..=3 * period))).max(Timestamp::from_secs(1_000_000_000)),
        // Doubles are exact until the year 2255.
        _ => (now + by).min(Timestamp::from_secs(8_000_000_000)),
    }
}

async fn tell(redis: &Redis, seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut rules: Vec<Rule> =
        (0..dice.usize(1..5)).map(|at| Rule::new(&format!("{seed}/{at}"), quota(&mut dice))).collect();
    let twins: Vec<_> = rules.iter().filter_map(|rule| twin(rule, &mut dice)).collect();
    rules.extend(twins);
    let settings = RedisSettings { deny_cache: Duration::ZERO, ..patient(&[redis.url()]) };
    let store = RedisStore::on_test_clock(settings);
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (mut model, mut now) = (Model::default(), Timestamp::from_secs(1_772_366_400));
    for step in 0..60 {
        now = later(now, &rules, &mut dice);
        let mut command = Cmd::new();
        command.arg("MSET");
        for key in RedisStore::test_clocks() {
            command.arg(key).arg(now.as_micros());
        }
        let _: Value = command.query_async(&mut connection).await.unwrap();
        if dice.u8(..4) == 0 {
            let rule = &rules[dice.usize(..rules.len())];
            let (key, adjustment) = (KEYS[dice.usize(..KEYS.len())], adjustment(rule, now, &mut dice));
            let told = store.adjust(rule, key, adjustment).await.unwrap();
            let expected = model.adjust(rule, key, adjustment, now);
            assert_eq!(
                told, expected,
                "seed {seed}, step {step}: {adjustment:?} of {key:?} under {}",
                rule.quota
            );
        } else {
            let mut checks: Vec<_> = (0..dice.usize(1..4)).map(|_| check(&rules, &mut dice)).collect();
            while !is_for_one_call(&checks) {
                checks.pop();
            }
            let told = store.decide(&checks).await.unwrap();
            let expected = model.decide(&checks, now);
            let asked: Vec<_> = checks
                .iter()
                .map(|it| (it.rule.quota.to_string(), it.key, it.demand, it.binding, it.count_denied))
                .collect();
            assert_eq!(told, expected, "seed {seed}, step {step} at {now:?}: {asked:#?}");
        }
    }
}

#[tokio::test]
async fn redis_answers_what_the_core_answers() {
    let redis = Redis::start();
    for seed in 0..150 {
        tell(&redis, seed).await;
    }
}
