//! Seeded random sequences, run against Redis and against the core: the answers are equal.
//!
//! They cover every algorithm, numbers from one to the maximum, batches of several checks, and
//! clocks that stand still, jump and step back.

use std::time::Duration;

use redis::{Cmd, Value};
use tollgate_core::{
    Adjustment, Amount, Bucket, ChargeTimes, Concurrency, FixedWindow, LeaseRequest, Overdraft, Owner, Queue,
    Quota, QuotaError, Rate, Rule, SlidingLog, SlidingParts, SlidingWindow, Span, Timestamp, Window,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{Check, Store};
use tollgate_testkit::Redis;

use crate::model::Model;
use crate::support::patient;

const KEYS: [&[u8]; 3] = [b"ann", b"bob", b"{c}\0\xff"];

fn period(rng: &mut fastrand::Rng) -> Span {
    Span::from_micros(match rng.u8(..4) {
        0 => rng.u64(1..2_000),
        1 => 1_000_000 * rng.u64(1..4_000),
        2 => rng.u64(1_000_000..100_000_000_000),
        _ => rng.u64(1..1 << 47),
    })
}

/// Returns small numbers as often as large ones.
fn up_to_bits(bits: u32, rng: &mut fastrand::Rng) -> u64 {
    let bits = rng.u32(1..bits);
    rng.u64(1..1 << bits)
}

fn parts(rate: Rate, parts: u32, strict: bool) -> Result<Quota, QuotaError> {
    SlidingParts::new(rate, parts).map(|it| if strict { it.strict() } else { it }.into())
}

fn queue(rng: &mut fastrand::Rng) -> Queue {
    let places = |rng: &mut fastrand::Rng| if rng.bool() { rng.u64(..20) } else { up_to_bits(40, rng) };
    let wait = rng.bool().then(|| Span::from_micros(up_to_bits(40, rng)));
    Queue { length: places(rng), wait, free: places(rng) }
}

fn quota(rng: &mut fastrand::Rng) -> Quota {
    loop {
        let period = period(rng);
        let count = if rng.bool() { rng.u64(1..20) } else { up_to_bits(48, rng) };
        let rate = Rate::new(count, period);
        let small = Rate::new(rng.u64(1..40), period);
        let made = match rng.u8(..14) {
            0..3 => {
                let burst = if rng.bool() { count } else { up_to_bits(40, rng) };
                Bucket::new(rate).and_then(|it| it.with_burst(burst)).map(Quota::from)
            }
            3 => FixedWindow::epoch(rate).map(Quota::from),
            4 => FixedWindow::anchored(rate).map(Quota::from),
            5 => SlidingWindow::new(rate).map(Quota::from),
            10 => parts(small, rng.u32(2..5), rng.bool()),
            11 => parts(rate, rng.u32(2..65), rng.bool()),
            6 => SlidingLog::new(small).map(Quota::from),
            8 => FixedWindow::tally(count - 1, Window::Epoch(period)).map(Quota::from),
            9 => Bucket::new(rate).map(|it| it.shared().into()),
            12 => Bucket::new(rate).and_then(|it| it.with_queue(queue(rng))).map(Quota::from),
            13 => Bucket::new(small).and_then(|it| it.with_queue(queue(rng))).map(Quota::from),
            _ => Concurrency::new(rng.u32(1..5), period).map(Quota::from),
        };
        if let Ok(quota) = made {
            return quota;
        }
    }
}

/// Returns another rule with the same ID and a different quota, if the kind permits it.
fn twin(rule: &Rule, rng: &mut fastrand::Rng) -> Option<Rule> {
    let quota: Quota = match &rule.quota {
        Quota::FixedWindow(it) if it.is_tally() => {
            FixedWindow::tally(rng.u64(..40), it.window().clone()).ok()?.into()
        }
        Quota::Bucket(it) if it.is_shared() => {
            Bucket::new(Rate::new(rng.u64(1..40), period(rng))).ok()?.shared().into()
        }
        Quota::Bucket(it) if it.is_short_queue() => it.with_queue(queue(rng)).ok()?.into(),
        _ => return None,
    };
    Some(Rule::new(&rule.name, quota)).filter(|twin| twin.id == rule.id)
}

/// Whether one call can hold the checks. Two quotas of one state in one batch are sent in parts,
/// and the intermediate states are not modeled (`conformance`).
fn is_for_one_call(checks: &[Check<'_>]) -> bool {
    let clash = |a: &Check<'_>, b: &Check<'_>| {
        a.rule.id == b.rule.id && a.key == b.key && a.rule.quota != b.rule.quota
    };
    !checks.iter().any(|a| checks.iter().any(|b| clash(a, b)))
}

fn units(quota: &Quota, rng: &mut fastrand::Rng) -> u64 {
    let most = quota.capacity();
    match rng.u8(..8) {
        0 => 0,
        1 => most,
        2 => most + rng.u64(1..3),
        3 => most / 2 + 1,
        // A log has one member for each unit: large logs are slow and test nothing more.
        _ => rng.u64(..=most.min(50)),
    }
}

/// Which amounts and adjustments a sequence has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acts {
    /// All but leases.
    Plain,
    /// Leases and their returns, too.
    Leases,
}

fn check<'a>(rules: &'a [Rule], acts: Acts, rng: &mut fastrand::Rng) -> Check<'a> {
    let rule = &rules[rng.usize(..rules.len())];
    let units = units(&rule.quota, rng);
    let amount = match (&rule.quota, rng.u8(..10)) {
        (Quota::Concurrency(_), 1..) | (_, 0) => Amount::Slot(Owner(rng.u128(..6) << 90)),
        (_, 1 | 2) => Amount::UpTo(units),
        (_, 3 | 4) if acts == Acts::Leases => {
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            Amount::Lease(LeaseRequest { units, ttl: lease_ttl(rule) })
        }
        _ => Amount::Exactly(units),
    };
    let key = KEYS[rng.usize(..KEYS.len())];
    Check { rule, key, amount, binding: rng.u8(..6) > 0, count_denied: rng.u8(..8) == 0 }
}

/// A twentieth of the period, so that a lease and its pad fit.
fn lease_ttl(rule: &Rule) -> Span {
    Span::from_micros(rule.quota.period().as_micros() / 20)
}

fn adjustment(
    rule: &Rule,
    acts: Acts,
    (now, ends): (Timestamp, Timestamp),
    rng: &mut fastrand::Rng,
) -> Adjustment {
    let units = units(&rule.quota, rng);
    match rng.u8(..10) {
        0..3 => {
            let mut random = || Span::from_micros(rng.u64(..=2 * rule.quota.period().as_micros()));
            let (ago, later) = (random(), random());
            let at = if rng.bool() { now } else { now.before(ago) };
            let until = match rng.u8(..3) {
                0 => ChargeTimes::without_end(at).until,
                1 => at + later,
                // Of the last charge.
                _ => ends,
            };
            Adjustment::Refund { units, charge: ChargeTimes { at, until } }
        }
        4 if acts == Acts::Leases => {
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            let ago = Span::from_micros(rng.u64(..=2 * lease_ttl(rule).as_micros()));
            let taken_at = if rng.u8(..8) == 0 { now + ago } else { now.before(ago) };
            Adjustment::ReturnLease { units, taken_at, ttl: lease_ttl(rule) }
        }
        3 | 4 => Adjustment::Grant { units },
        5 => Adjustment::Charge { units, overdraft: Overdraft::None },
        6 => Adjustment::Charge { units, overdraft: Overdraft::OneCapacity },
        _ if !matches!(rule.quota, Quota::Concurrency(_)) => Adjustment::Reset,
        7 => Adjustment::Reset,
        8 => Adjustment::Renew { owner: Owner(rng.u128(..6) << 90) },
        _ => Adjustment::Release { owner: Owner(rng.u128(..6) << 90) },
    }
}

/// Returns the next instant: soon after, a period later, or earlier.
fn later(now: Timestamp, rules: &[Rule], rng: &mut fastrand::Rng) -> Timestamp {
    let period = rules[rng.usize(..rules.len())].quota.period().as_micros();
    let by = Span::from_micros(match rng.u8(..8) {
        0 => 0,
        1 => rng.u64(..100),
        2 => period,
        _ => rng.u64(..=period) / rng.u64(1..50),
    });
    match rng.u8(..20) {
        0 => now.before(Span::from_micros(rng.u64(..=3 * period))).max(Timestamp::from_secs(1_000_000_000)),
        // Doubles are exact until the year 2255.
        _ => (now + by).min(Timestamp::from_secs(8_000_000_000)),
    }
}

async fn run_sequence(redis: &Redis, acts: Acts, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rules: Vec<Rule> = (0..rng.usize(1..5))
        .map(|at| Rule::new(&format!("{seed}/{at}/{}", acts == Acts::Leases), quota(&mut rng)))
        .collect();
    let twins: Vec<_> = rules.iter().filter_map(|rule| twin(rule, &mut rng)).collect();
    if acts == Acts::Plain {
        rules.extend(twins);
    }
    let settings = RedisSettings { deny_cache: Duration::ZERO, ..patient(&[redis.url()]) };
    let store = RedisStore::on_test_clock(settings);
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (mut model, mut now) = (Model::default(), Timestamp::from_secs(1_772_366_400));
    for step in 0..60 {
        now = later(now, &rules, &mut rng);
        let mut command = Cmd::new();
        command.arg("MSET");
        for key in RedisStore::test_clocks() {
            command.arg(key).arg(now.as_micros());
        }
        let _: Value = command.query_async(&mut connection).await.unwrap();
        if rng.u8(..4) == 0 {
            let rule = &rules[rng.usize(..rules.len())];
            let key = KEYS[rng.usize(..KEYS.len())];
            let adjustment = adjustment(rule, acts, (now, model.ends(rule, key)), &mut rng);
            let reply = store.adjust(rule, key, adjustment).await.unwrap();
            let expected = model.adjust(rule, key, adjustment, now);
            assert_eq!(
                reply, expected,
                "seed {seed}, step {step}: {adjustment:?} of {key:?} under {}",
                rule.quota
            );
        } else {
            let mut checks: Vec<_> = (0..rng.usize(1..4)).map(|_| check(&rules, acts, &mut rng)).collect();
            while !is_for_one_call(&checks) {
                checks.pop();
            }
            let reply = store.decide(&checks).await.unwrap();
            let expected = model.decide(&checks, now);
            let shown: Vec<_> = checks
                .iter()
                .map(|it| (it.rule.quota.to_string(), it.key, it.amount, it.binding, it.count_denied))
                .collect();
            assert_eq!(reply, expected, "seed {seed}, step {step} at {now:?}: {shown:#?}");
        }
    }
}

#[tokio::test]
async fn redis_and_the_core_give_equal_answers() {
    let redis = Redis::start();
    for seed in 0..150 {
        run_sequence(&redis, Acts::Plain, seed).await;
    }
}

#[tokio::test]
async fn redis_and_the_core_give_equal_answers_about_leases() {
    let redis = Redis::start();
    for seed in 0..150 {
        run_sequence(&redis, Acts::Leases, seed).await;
    }
}
