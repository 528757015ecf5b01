//! Adjustments with an id are applied once, whatever happens to the server in between.

use std::time::{Duration, Instant};

use tollgate::{BreakerState, Call, Limiter, OutageSettings, Policy};
use tollgate_core::{
    Adjustment, Bucket, ChargeTimes, FixedWindow, Overdraft, Quota, Rate, Rule, SlidingLog, SlidingParts,
    SlidingWindow, Span, Window,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{AdjustmentId, Check, Repeatable, Store, StoreError};
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::{patient, store};

const CHARGE: Adjustment = Adjustment::Charge { units: 30, overdraft: Overdraft::OneCapacity };

/// Every algorithm that counts units, with a limit of 100.
fn rules() -> Vec<Rule> {
    let rate = Rate::per_day(100);
    let quotas: [Quota; 5] = [
        Bucket::new(rate).unwrap().into(),
        FixedWindow::new(100, Window::Epoch(Span::from_days(1))).unwrap().into(),
        SlidingWindow::new(rate).unwrap().into(),
        SlidingParts::new(rate, 7).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
    ];
    quotas.into_iter().map(|quota| Rule::new(&format!("once-{}", quota.algorithm()), quota)).collect()
}

fn hasty(urls: &[String]) -> RedisStore {
    RedisStore::new(RedisSettings { deadline: Duration::from_millis(100), ..patient(urls) })
}

async fn left(store: &RedisStore, rule: &Rule, key: &str) -> u64 {
    store.decide(&[Check::new(rule, key.as_bytes(), 0)]).await.unwrap().outcomes[0].remaining
}

async fn repeats_change_nothing(store: &RedisStore) {
    for (at, rule) in rules().into_iter().enumerate() {
        // Keys of several partitions.
        for user in 0..4 {
            let (key, decision) = (format!("user-{user}"), 4 * at as u128 + user);
            let id = |n: u128| AdjustmentId(decision << 64 | n);
            let answer = store.decide(&[Check::new(&rule, key.as_bytes(), 20)]).await.unwrap();
            let charge = ChargeTimes::of(answer.at, &answer.outcomes[0]);
            let adjust = |change, n| store.adjust_once(&rule, key.as_bytes(), Repeatable::new(change, id(n)));
            // Together in one call, and one after the other.
            let (one, two) = tokio::join!(adjust(CHARGE, 1), adjust(CHARGE, 1));
            let again = adjust(CHARGE, 1).await.unwrap();
            assert_eq!([one.unwrap(), two.unwrap(), again].map(|it| it.remaining), [50; 3], "{}", rule.name);
            assert_eq!(adjust(CHARGE, 2).await.unwrap().remaining, 20, "{}", rule.name);
            let refund = Adjustment::Refund { units: 20, charge };
            for _ in 0..2 {
                assert_eq!(adjust(refund, 3).await.unwrap().remaining, 40, "{}", rule.name);
            }
            let grant = Adjustment::Grant { units: 10 };
            for _ in 0..2 {
                assert_eq!(adjust(grant, 4).await.unwrap().remaining, 50, "{}", rule.name);
            }
            assert_eq!(left(store, &rule, &key).await, 50, "{}", rule.name);
        }
    }
}

#[tokio::test]
async fn a_repeated_adjustment_changes_nothing() {
    let redis = Redis::start();
    repeats_change_nothing(&store(&[redis.url()])).await;
}

#[tokio::test]
async fn a_repeated_adjustment_changes_nothing_on_a_cluster() {
    let cluster = RedisCluster::start();
    repeats_change_nothing(&store(&cluster.urls())).await;
}

#[tokio::test]
async fn an_adjustment_of_a_replaced_rule_is_recognized() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    let before = Rule::new("reloaded", Bucket::new(Rate::per_day(100)).unwrap());
    let after = Rule::new("reloaded", Bucket::new(Rate::per_day(200)).unwrap()).replacing(&before);
    let id = AdjustmentId(7);
    assert_eq!(store.adjust_once(&before, b"key", Repeatable::new(CHARGE, id)).await.unwrap().remaining, 70);
    assert_eq!(store.adjust_once(&after, b"key", Repeatable::new(CHARGE, id)).await.unwrap().remaining, 170);
}

#[tokio::test]
async fn an_adjustment_that_a_frozen_server_executes_late_is_applied_once() {
    let redis = Redis::start();
    let (hasty, calm) = (hasty(&[redis.url()]), store(&[redis.url()]));
    let rule = Rule::new("frozen", Bucket::new(Rate::per_day(100)).unwrap());
    let id = AdjustmentId(7);
    assert_eq!((left(&hasty, &rule, "key").await, left(&calm, &rule, "key").await), (100, 100));
    redis.pause();
    let late = hasty.adjust_once(&rule, b"key", Repeatable::new(CHARGE, id)).await;
    assert!(matches!(late, Err(StoreError::Failed(_))), "{late:?}");
    let repeated = async { calm.adjust_once(&rule, b"key", Repeatable::new(CHARGE, id)).await };
    let (repeated, ()) = tokio::join!(repeated, async { redis.resume() });
    assert_eq!(repeated.unwrap().remaining, 70);
    // The late call is executed before this one, which uses the same connection.
    while hasty.adjust_once(&rule, b"other", Repeatable::new(CHARGE, AdjustmentId(8))).await.is_err() {}
    assert_eq!((left(&calm, &rule, "key").await, left(&calm, &rule, "other").await), (70, 70));
}

#[tokio::test]
async fn markers_survive_a_restart_and_expire_within_bounds() {
    let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = store(&[redis.url()]);
    let (daily, brief) = (Rate::per_day(100), Rate::per_second(100));
    let [daily, brief] =
        [("daily", daily), ("brief", brief)].map(|(name, rate)| Rule::new(name, Bucket::new(rate).unwrap()));
    store.decide(&[Check::new(&daily, b"key", 1)]).await.unwrap();
    let markers = || redis.cli(&["KEYS", "tg1:*:once:*"]).lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(markers().is_empty(), "a decision writes none");
    let lives = |most: u64| {
        let [marker] = &markers()[..] else { panic!("one marker: {:?}", markers()) };
        let milliseconds: u64 = redis.cli(&["PTTL", marker]).trim().parse().unwrap();
        assert!(milliseconds <= most, "{milliseconds}");
        redis.cli(&["DEL", marker]);
    };
    store.adjust_once(&brief, b"key", Repeatable::new(CHARGE, AdjustmentId(1))).await.unwrap();
    lives(12_000);
    store.adjust_once(&daily, b"key", Repeatable::new(CHARGE, AdjustmentId(2))).await.unwrap();
    lives(600_000);
    store.adjust_once(&daily, b"key", Repeatable::new(CHARGE, AdjustmentId(3))).await.unwrap();
    redis.restart();
    let begun = Instant::now();
    let outcome = loop {
        match store.adjust_once(&daily, b"key", Repeatable::new(CHARGE, AdjustmentId(3))).await {
            Ok(outcome) => break outcome,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(outcome.remaining, 100 - 1 - 30 - 30);
}

/// How the server treats a settlement.
#[derive(Clone, Copy, Debug)]
enum Fault {
    FrozenAndContinued,
    FrozenAndKilled,
    Killed,
}

/// Settles a charge of ten at `cost` during the fault, and returns the remaining units of a hundred.
async fn settle_during(fault: Fault, cost: u64) -> u64 {
    let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let policy = Policy::parse("limits: [{name: slow, by: user, bucket: 100/day}]").unwrap();
    let probes = Duration::from_millis(10);
    let settings = OutageSettings { first_probe: probes, longest_probe: probes, ..OutageSettings::default() };
    let limiter = Limiter::with_store(policy, hasty(&[redis.url()])).with_outage(&settings);
    let call = |cost| Call::new("GET", "/").user("ann").cost(cost);
    let begun = Instant::now();
    let receipt = loop {
        let decision = limiter.decide(&call(10)).await;
        if !decision.is_degraded() {
            break decision.receipt().unwrap();
        }
        // A busy machine missed the deadline; the store takes that charge back.
        limiter.refund(&decision).await.unwrap();
    };
    match fault {
        Fault::FrozenAndContinued | Fault::FrozenAndKilled => redis.pause(),
        Fault::Killed => redis.kill(),
    }
    limiter.settle_receipt(&receipt, cost).await.unwrap();
    limiter.reconcile().await;
    assert_eq!(limiter.health().ledger_keys, 1, "{fault:?}: the cost is kept");
    match fault {
        Fault::FrozenAndContinued => redis.resume(),
        Fault::FrozenAndKilled | Fault::Killed => redis.restart(),
    }
    let calm = store(&[redis.url()]);
    let rule = limiter.policy().limits()[0].rules()[0].clone();
    let key = limiter.policy().key(&limiter.policy().limits()[0], &["ann"]).unwrap();
    while limiter.health().ledger_keys > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{fault:?}");
        limiter.reconcile().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(limiter.health().lost_entries, 0, "{fault:?}");
    calm.decide(&[Check::new(&rule, key.as_bytes(), 0)]).await.unwrap().outcomes[0].remaining
}

#[tokio::test]
async fn a_settlement_is_counted_once_whatever_happens_to_the_server() {
    for fault in [Fault::FrozenAndContinued, Fault::FrozenAndKilled, Fault::Killed] {
        for (cost, left) in [(60, 40), (3, 97)] {
            assert_eq!(settle_during(fault, cost).await, left, "{fault:?} at {cost}");
        }
    }
}

/// The slot of the only key, and a primary that does not have it.
fn slot_and_primary(cluster: &RedisCluster) -> (u16, usize) {
    let name = (0..6).map(|at| cluster.node(at).cli(&["KEYS", "tg1*"])).find(|it| !it.is_empty()).unwrap();
    let slot = cluster.slot_of(name.lines().next().unwrap());
    let from = cluster.primary_of_slot(slot);
    let to = (0..6).find(|&at| at != from && cluster.node(at).cli(&["ROLE"]).starts_with("master")).unwrap();
    (slot, to)
}

#[tokio::test]
async fn a_settlement_whose_slot_migrates_is_kept_and_applied_once() {
    for (cost, left) in [(60, 40), (3, 97)] {
        let cluster = RedisCluster::start();
        let policy = Policy::parse("limits: [{name: moving, by: user, bucket: 100/day}]").unwrap();
        let settings = OutageSettings { failures: 2, ..OutageSettings::default() };
        let limiter = Limiter::with_store(policy, store(&cluster.urls())).with_outage(&settings);
        let call = |cost| Call::new("GET", "/").user("ann").cost(cost);
        let decision = limiter.decide(&call(10)).await;
        assert!(!decision.is_degraded());
        let receipt = decision.receipt().unwrap();
        let (slot, to) = slot_and_primary(&cluster);
        // The old primary has the key and no marker: it can neither execute nor redirect the change.
        cluster.open_slot(slot, to);
        limiter.settle_receipt(&receipt, cost).await.unwrap();
        for _ in 0..5 {
            assert_eq!((limiter.reconcile().await, limiter.health().ledger_keys), (0, 1));
        }
        let health = limiter.health();
        assert_eq!(health.breaker, BreakerState::Closed, "the cluster answers: {health:?}");
        let meanwhile = limiter.decide(&call(0)).await;
        assert!(!meanwhile.is_degraded(), "a call with one key is answered");
        cluster.close_slot(slot, to);
        assert_eq!((limiter.reconcile().await, limiter.health().ledger_keys), (1, 0));
        limiter.settle_receipt(&receipt, cost).await.unwrap();
        let settled = limiter.decide(&call(0)).await;
        assert_eq!(settled.limits().next().unwrap().remaining(), left, "settled at {cost}");
        assert_eq!(limiter.health().lost_entries, 0);
    }
}
