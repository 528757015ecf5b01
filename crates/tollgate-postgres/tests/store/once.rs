//! Adjustments with an id are applied once, whatever happens to the server in between.

use std::time::Duration;

use tollgate_core::{Adjustment, Bucket, ChargeTimes, FixedWindow, Overdraft, Quota, Rate, Rule, SlidingLog};
use tollgate_postgres::{PostgresSettings, PostgresStore};
use tollgate_store::{AdjustmentId, Check, Repeatable, Store, StoreError};
use tollgate_testkit::Postgres;

use crate::support::{daily, eventually, left, patient, store};

const CHARGE: Adjustment = Adjustment::Charge { units: 30, overdraft: Overdraft::OneCapacity };

#[tokio::test]
async fn a_repeated_adjustment_changes_nothing() {
    let server = Postgres::start();
    let store = store(&server);
    let rate = Rate::per_day(100);
    let quotas: [Quota; 3] = [
        Bucket::new(rate).unwrap().into(),
        FixedWindow::anchored(rate).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
    ];
    for (at, quota) in quotas.into_iter().enumerate() {
        let rule = Rule::new(&format!("once-{at}"), quota);
        let id = |n: u128| AdjustmentId((at as u128) << 64 | n);
        let answer = store.decide(&[Check::new(&rule, b"key", 20)]).await.unwrap();
        let charge = ChargeTimes::of(answer.at, &answer.outcomes[0]);
        let adjust = |change, n| store.adjust_once(&rule, b"key", Repeatable::new(change, id(n)));
        // Together in one transaction, and one after the other.
        let (one, two) = tokio::join!(adjust(CHARGE, 1), adjust(CHARGE, 1));
        let again = adjust(CHARGE, 1).await.unwrap();
        assert_eq!([one.unwrap(), two.unwrap(), again].map(|it| it.remaining), [50; 3], "{}", rule.quota);
        assert_eq!(adjust(CHARGE, 2).await.unwrap().remaining, 20, "{}", rule.quota);
        let refund = Adjustment::Refund { units: 20, charge };
        for _ in 0..2 {
            assert_eq!(adjust(refund, 3).await.unwrap().remaining, 40, "{}", rule.quota);
        }
        assert_eq!(left(&store, &rule, "key").await, 40, "{}", rule.quota);
    }
}

#[tokio::test]
async fn an_adjustment_of_a_replaced_rule_is_recognized() {
    let server = Postgres::start();
    let store = store(&server);
    let (before, after) = (daily("reloaded", 100), daily("reloaded", 200));
    let after = after.replacing(&before);
    let id = AdjustmentId(7);
    assert_eq!(store.adjust_once(&before, b"key", Repeatable::new(CHARGE, id)).await.unwrap().remaining, 70);
    assert_eq!(store.adjust_once(&after, b"key", Repeatable::new(CHARGE, id)).await.unwrap().remaining, 170);
}

#[tokio::test]
async fn an_adjustment_that_a_frozen_server_commits_late_is_applied_once() {
    let server = Postgres::start();
    let settings = PostgresSettings { deadline: Duration::from_millis(200), ..patient(&server) };
    let (hasty, calm) = (PostgresStore::new(settings), store(&server));
    let rule = daily("frozen", 100);
    eventually("connected", async || hasty.probe().await.is_ok()).await;
    assert_eq!(left(&calm, &rule, "key").await, 100);
    server.pause();
    let late = hasty.adjust_once(&rule, b"key", Repeatable::new(CHARGE, AdjustmentId(7))).await;
    assert!(matches!(late, Err(StoreError::TimedOut(_) | StoreError::Failed(_))), "{late:?}");
    server.resume();
    for _ in 0..2 {
        let repeated = calm.adjust_once(&rule, b"key", Repeatable::new(CHARGE, AdjustmentId(7))).await;
        assert_eq!(repeated.unwrap().remaining, 70);
    }
}

#[tokio::test]
async fn ids_and_charges_survive_a_crash_of_the_server() {
    let server = Postgres::start();
    let store = PostgresStore::new(PostgresSettings { synchronous_commit: true, ..patient(&server) });
    let rule = daily("crash", 100);
    store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM tollgate_adjustments"), "0", "a decision writes none");
    store.adjust_once(&rule, b"key", Repeatable::new(CHARGE, AdjustmentId(3))).await.unwrap();
    server.restart();
    eventually("the store connects again", async || {
        store
            .adjust_once(&rule, b"key", Repeatable::new(CHARGE, AdjustmentId(3)))
            .await
            .is_ok_and(|it| it.remaining == 69)
    })
    .await;
    assert_eq!(left(&store, &rule, "key").await, 69);
}
