//! The deny cache never refuses a request that Redis would admit.

use std::time::Duration;

use tollgate_core::{
    Adjustment, Amount, Bucket, Concurrency, FixedWindow, Owner, Quota, Rate, Rule, SlidingLog, SlidingParts,
    SlidingWindow, Span, Window,
};
use tollgate_redis::{RedisSettings, RedisStore};
use tollgate_store::{Check, Outcomes, Store};
use tollgate_testkit::Redis;

use crate::support::{patient, store};

async fn take(store: &RedisStore, rule: &Rule, cost: u64) -> bool {
    store.decide(&[Check::new(rule, b"key", cost)]).await.unwrap().admitted
}

fn each(rate: Rate) -> [(&'static str, Quota); 6] {
    [
        ("bucket", Bucket::new(rate).unwrap().into()),
        ("window", FixedWindow::anchored(rate).unwrap().into()),
        ("sliding", SlidingWindow::new(rate).unwrap().into()),
        ("parts", SlidingParts::new(rate, 7).unwrap().into()),
        ("strict parts", SlidingParts::new(rate, 7).unwrap().strict().into()),
        ("log", SlidingLog::new(rate).unwrap().into()),
    ]
}

#[tokio::test]
async fn repeated_refusals_do_not_reach_redis() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    for (name, quota) in each(Rate::per_day(5)) {
        let rule = Rule::new(name, quota);
        for _ in 0..6 {
            take(&store, &rule, 1).await;
        }
        let before = store.counters();
        for _ in 0..100 {
            assert!(!take(&store, &rule, 1).await);
        }
        let after = store.counters();
        assert!(after.calls - before.calls <= 2, "{name}: a second may have passed, no more");
        let mut outcomes = Outcomes::new();
        let immediate = store.try_decide(&[Check::new(&rule, b"key", 1)], &mut outcomes);
        assert!(immediate.is_some_and(|(admitted, _)| !admitted), "{name}: without waiting");
        assert!(outcomes[0].retry_after().is_some_and(|wait| wait > Span::ZERO), "{name}");
    }
}

#[tokio::test]
async fn a_smaller_cost_than_the_refused_one_is_sent_to_redis() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    for (name, quota) in each(Rate::per_day(5)) {
        let rule = Rule::new(name, quota);
        assert!(take(&store, &rule, 3).await);
        assert!(!take(&store, &rule, 3).await, "{name}");
        assert!(take(&store, &rule, 2).await, "{name}: two are there");
        assert!(!take(&store, &rule, 1).await, "{name}");
    }
}

#[tokio::test]
async fn a_request_after_the_advised_wait_is_admitted() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    for (name, quota) in each(Rate::new(5, Span::from_millis(400))) {
        let rule = Rule::new(name, quota);
        let mut wait = Span::ZERO;
        for _ in 0..50 {
            let answer = store.decide(&[Check::new(&rule, b"key", 5)]).await.unwrap();
            wait = answer.outcomes[0].retry_after().unwrap_or(wait);
        }
        tokio::time::sleep(wait.into()).await;
        assert!(take(&store, &rule, 5).await, "{name}: refused after {wait}");
    }
}

#[tokio::test]
async fn changes_of_this_node_take_effect_here_immediately() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    let rule = Rule::new("given back", Bucket::new(Rate::per_day(2)).unwrap());
    for adjustment in [Adjustment::Grant { units: 2 }, Adjustment::Reset] {
        while take(&store, &rule, 1).await {}
        assert!(!take(&store, &rule, 1).await);
        store.adjust(&rule, b"key", adjustment).await.unwrap();
        assert!(take(&store, &rule, 1).await, "{adjustment:?}");
    }
}

#[tokio::test]
async fn changes_of_other_nodes_take_effect_within_the_cache_lifetime() {
    let redis = Redis::start();
    let here =
        RedisStore::new(RedisSettings { deny_cache: Duration::from_millis(200), ..patient(&[redis.url()]) });
    let synonyms = store(&[redis.url()]);
    let rule = Rule::new("elsewhere", Bucket::new(Rate::per_day(2)).unwrap());
    while take(&here, &rule, 1).await {}
    synonyms.adjust(&rule, b"key", Adjustment::Reset).await.unwrap();
    tokio::time::sleep(Duration::from_millis(201)).await;
    assert!(take(&here, &rule, 1).await);
}

#[tokio::test]
async fn uncached_keys_and_slots_are_sent_to_redis() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    let (all, own) = (
        Rule::new("all", Bucket::new(Rate::per_day(1)).unwrap()),
        Rule::new("own", Bucket::new(Rate::per_day(9)).unwrap()),
    );
    while take(&store, &all, 1).await {}
    let before = store.counters().calls;
    let answer =
        store.decide(&[Check::new(&own, b"stranger", 1), Check::new(&all, b"key", 1)]).await.unwrap();
    assert_eq!((answer.admitted, answer.outcomes[0].remaining), (false, 9));
    assert_eq!(store.counters().calls, before + 1);
    let again = store.decide(&[Check::new(&own, b"stranger", 1), Check::new(&all, b"key", 1)]).await.unwrap();
    assert_eq!((again.admitted, again.outcomes[0].remaining, store.counters().calls), (false, 9, before + 1));

    let slots = Rule::new("slots", Concurrency::new(1, Span::from_hours(1)).unwrap());
    let slot = |owner| Check { amount: Amount::Slot(Owner(owner)), ..Check::new(&slots, b"key", 1) };
    assert!(store.decide(&[slot(1)]).await.unwrap().admitted);
    assert!(!store.decide(&[slot(2)]).await.unwrap().admitted);
    redis.cli(&["FLUSHALL"]);
    assert!(store.decide(&[slot(2)]).await.unwrap().admitted, "it may have been released");
}

#[tokio::test]
async fn a_disabled_cache_and_counted_refusals_cache_nothing() {
    let redis = Redis::start();
    let off = RedisStore::new(RedisSettings { deny_cache: Duration::ZERO, ..patient(&[redis.url()]) });
    let on = store(&[redis.url()]);
    let rule = Rule::new("off", Bucket::new(Rate::per_day(1)).unwrap());
    for (store, count_denied) in [(&off, false), (&on, true)] {
        for _ in 0..10 {
            store.decide(&[Check { count_denied, ..Check::new(&rule, b"key", 1) }]).await.unwrap();
        }
        assert_eq!((store.counters().calls, store.counters().remembered), (10, 0));
    }
}

#[tokio::test]
async fn a_refusal_under_one_quota_does_not_refuse_under_another_of_the_same_state() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    let tally = |limit| {
        let window = Window::Anchored(Span::from_days(1));
        Rule::new("tally", FixedWindow::tally(limit, window).unwrap())
    };
    let bucket = |units| Rule::new("bucket", Bucket::new(Rate::per_day(units)).unwrap().shared());
    for (name, small, large) in [("tally", tally(10), tally(20)), ("bucket", bucket(1), bucket(1_000))] {
        while take(&store, &small, 1).await {}
        let before = store.counters();
        assert!(!take(&store, &small, 1).await, "{name}: remembered");
        assert_eq!(store.counters().remembered, before.remembered + 1, "{name}");
        if name == "tally" {
            assert!(take(&store, &large, 1).await, "{name}: eleven of twenty");
        }
        while take(&store, &large, 1).await {}
        assert!(!take(&store, &small, 1).await && !take(&store, &large, 1).await, "{name}");
    }
    // The larger bucket has more room for the debt of the smaller one, but refills at its own rate.
    let roomy = Bucket::new(Rate::per_day(1)).unwrap().with_burst(5).unwrap().shared();
    let (tight, roomy) = (bucket(1), Rule::new("bucket", roomy));
    store.adjust(&tight, b"key", Adjustment::Reset).await.unwrap();
    assert!(take(&store, &tight, 1).await && !take(&store, &tight, 1).await);
    assert!(take(&store, &roomy, 4).await, "four of five days are left");
    assert!(!take(&store, &roomy, 1).await && !take(&store, &tight, 1).await);
}

/// Returns whether the request was admitted, the remaining units, and the wait.
async fn decide(store: &RedisStore, rule: &Rule, cost: u64) -> (bool, u64, Span) {
    let answer = store.decide(&[Check::new(rule, b"key", cost)]).await.unwrap();
    (answer.admitted, answer.outcomes[0].remaining, answer.outcomes[0].reset_after)
}

#[tokio::test]
async fn a_cached_refusal_includes_later_charges_of_this_node() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    for (name, quota) in each(Rate::per_day(3)) {
        let rule = Rule::new(name, quota);
        assert!(!decide(&store, &rule, 4).await.0, "{name}");
        let (admitted, left, spent) = decide(&store, &rule, 2).await;
        assert_eq!((admitted, left), (true, 1), "{name}");
        let remembered = store.counters().remembered;
        let (admitted, left, reset) = decide(&store, &rule, 4).await;
        assert_eq!((admitted, left), (false, 1), "{name}");
        assert!(reset <= spent && reset > Span::ZERO, "{name}: {reset}");
        // A log is requested again: only Redis knows when its units become available.
        assert_eq!(store.counters().remembered - remembered, u64::from(name != "log"), "{name}");
    }
}

#[tokio::test]
async fn a_cached_refusal_includes_later_charges_under_other_quotas_of_the_state() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    let bucket = |rate, burst| {
        let bucket = Bucket::new(rate).unwrap().with_burst(burst).unwrap();
        Rule::new("shared", bucket.shared())
    };
    let (tight, roomy) =
        (bucket(Rate::new(1, Span::from_secs(200)), 1), bucket(Rate::new(30, Span::from_secs(6_000)), 16));
    assert!(take(&store, &tight, 1).await && !take(&store, &tight, 1).await);
    assert!(take(&store, &roomy, 15).await);
    let answer = store.decide(&[Check::new(&tight, b"key", 1)]).await.unwrap();
    let wait = answer.outcomes[0].retry_after().unwrap();
    assert!(wait > Span::from_secs(3_100) && wait <= Span::from_secs(3_200), "{wait}");
}
