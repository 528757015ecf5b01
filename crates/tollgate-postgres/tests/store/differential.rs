//! Seeded random sequences, run against PostgreSQL and against the in-memory store: the answers are
//! equal to the microsecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{
    Adjustment, Amount, Bucket, ChargeTimes, Concurrency, FixedWindow, LeaseRequest, Overdraft, Owner, Queue,
    Quota, Rate, Rule, SlidingLog, SlidingParts, SlidingWindow, Span, Timestamp,
};
use tollgate_postgres::PostgresStore;
use tollgate_store::{Check, ManualClock, MemoryStore, Store};
use tollgate_testkit::Postgres;

use crate::support::patient;

const KEYS: [&[u8]; 3] = [b"ann", b"bob", b"{c}\0\xff"];
const START: Timestamp = Timestamp::from_secs(1_900_000_000);

fn quota(rng: &mut fastrand::Rng) -> Quota {
    loop {
        let period = Span::from_micros(rng.u64(1_000..10_000_000_000));
        let rate = Rate::new(rng.u64(1..30), period);
        let made = match rng.u8(..9) {
            0 | 1 => Bucket::new(rate).and_then(|it| it.with_burst(rng.u64(1..40))).map(Quota::from),
            2 => Bucket::new(rate).and_then(|it| it.with_queue(Queue::new(rng.u64(..20)))).map(Quota::from),
            3 => FixedWindow::epoch(rate).map(Quota::from),
            4 => FixedWindow::anchored(rate).map(Quota::from),
            5 => SlidingWindow::new(rate).map(Quota::from),
            6 => SlidingParts::new(rate, rng.u32(2..9)).map(Quota::from),
            7 => SlidingLog::new(rate).map(Quota::from),
            _ => Concurrency::new(rng.u32(1..5), period).map(Quota::from),
        };
        if let Ok(quota) = made {
            return quota;
        }
    }
}

fn check<'a>(rule: &'a Rule, rng: &mut fastrand::Rng) -> Check<'a> {
    let units = rng.u64(..=rule.quota.capacity() + 1);
    let amount = match (&rule.quota, rng.u8(..10)) {
        (Quota::Concurrency(_), _) => Amount::Slot(Owner(rng.u128(..6) << 90)),
        (_, 0 | 1) => Amount::UpTo(units),
        (quota, 2) if quota.is_leasable() => {
            let ttl = Span::from_micros(quota.period().as_micros() / 20);
            Amount::Lease(LeaseRequest { units: u32::try_from(units).unwrap(), ttl })
        }
        _ => Amount::Exactly(units),
    };
    Check { rule, key: KEYS[rng.usize(..KEYS.len())], amount, binding: rng.u8(..6) > 0, count_denied: false }
}

fn adjustment(rule: &Rule, now: Timestamp, rng: &mut fastrand::Rng) -> Adjustment {
    let units = rng.u64(..=rule.quota.capacity());
    match rng.u8(..6) {
        0 => Adjustment::Refund { units, charge: ChargeTimes::without_end(now) },
        1 => Adjustment::Grant { units },
        2 => Adjustment::Charge { units, overdraft: Overdraft::None },
        3 => Adjustment::Charge { units, overdraft: Overdraft::OneCapacity },
        4 => Adjustment::Release { owner: Owner(rng.u128(..6) << 90) },
        _ => Adjustment::Reset,
    }
}

#[tokio::test]
async fn random_steps_are_decided_as_in_memory() {
    let server = Postgres::start();
    let micros = Arc::new(AtomicU64::new(START.as_micros()));
    let store = PostgresStore::on_test_clock(patient(&server), Arc::clone(&micros));
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let clock = ManualClock::at(Timestamp::from_micros(micros.load(Ordering::Relaxed)));
        let memory = MemoryStore::with_clock(1_000, clock.clone());
        let rules: Vec<_> = (0..3).map(|n| Rule::new(&format!("{seed}-{n}"), quota(&mut rng))).collect();
        for step in 0..40 {
            let passed = if rng.bool() { rng.u64(..1_000_000) } else { rng.u64(..3) };
            clock.advance(Span::from_micros(passed));
            let now = micros.fetch_add(passed, Ordering::Relaxed) + passed;
            if rng.u8(..4) == 0 {
                let (rule, key) = (&rules[rng.usize(..3)], KEYS[rng.usize(..KEYS.len())]);
                let change = adjustment(rule, Timestamp::from_micros(now), &mut rng);
                let expected = memory.adjust_now(rule, key, change);
                let found = store.adjust(rule, key, change).await.unwrap();
                assert_eq!(found, expected, "seed {seed}, step {step}: {change:?} of {}", rule.quota);
            } else {
                // Different rules, so that each state occurs once in a batch.
                let mut order = [0, 1, 2];
                rng.shuffle(&mut order);
                let checks: Vec<_> =
                    order[..rng.usize(1..=3)].iter().map(|&at| check(&rules[at], &mut rng)).collect();
                let expected = memory.decide(&checks).await.unwrap();
                let found = store.decide(&checks).await.unwrap();
                assert_eq!(found, expected, "seed {seed}, step {step}: {checks:?}");
            }
        }
    }
}
