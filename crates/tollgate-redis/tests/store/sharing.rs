//! Waiting requests share a call without admitting more than separate calls would.

use std::sync::Arc;

use tollgate_core::{
    Adjustment, Amount, Bucket, Concurrency, FixedWindow, Owner, Queue, Quota, Rate, Rule, SlidingLog,
    SlidingParts, SlidingWindow, Span, Timestamp, Window,
};
use tollgate_redis::RedisStore;
use tollgate_store::{Answer, Check, Store};
use tollgate_testkit::{Redis, RedisCluster, SentinelTrio};

use crate::support::store;

fn hourly(name: &str, units: u64) -> Rule {
    Rule::new(name, Bucket::new(Rate::per_hour(units)).unwrap())
}

/// Sends all requests concurrently from separate tasks; returns the answers in sending order.
async fn crowd(
    store: &Arc<RedisStore>,
    size: usize,
    ask: impl Fn(usize) -> (Rule, Vec<u8>, Amount),
) -> Vec<Answer> {
    let tasks: Vec<_> = (0..size)
        .map(|at| {
            let (store, (rule, key, amount)) = (Arc::clone(store), ask(at));
            tokio::spawn(async move {
                store.decide(&[Check { amount, ..Check::new(&rule, &key, 1) }]).await.unwrap()
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn requests_for_one_key_share_calls_and_keep_their_order() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    store.connect().await.unwrap();
    let rule = hourly("crowd", 100);
    let answers = crowd(&store, 1_000, |_| (rule.clone(), b"hot".to_vec(), Amount::Exactly(1))).await;
    let left: Vec<_> = answers.iter().map(|it| (it.admitted, it.outcomes[0].remaining)).collect();
    let expected: Vec<_> =
        (0..100).rev().map(|left| (true, left)).chain(std::iter::repeat_n((false, 0), 900)).collect();
    assert_eq!(left, expected, "each sees the key as it was at their turn");
    assert!(store.counters().calls <= 3, "{:?}", store.counters());
}

/// Returns when the admitted requests of a crowd start, in order of their requests.
fn starts(answers: &[Answer]) -> Vec<Timestamp> {
    answers.iter().filter(|it| it.admitted).map(|it| it.at + it.outcomes[0].wait()).collect()
}

#[tokio::test]
async fn of_a_thousand_requests_at_once_the_first_wait_spaced_by_the_rate() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    store.connect().await.unwrap();
    // Whole ticks use the plain script, fractions of a tick the general one.
    for (name, rate) in [("whole", Rate::per_hour(10)), ("fractions", Rate::new(7, Span::from_hours(1)))] {
        let rule = queue(name, rate, 50);
        let ask = |_| (rule.clone(), b"hot".to_vec(), Amount::Exactly(1));
        let answers = crowd(&store, 1_000, ask).await;
        assert!(answers[..51].iter().all(|it| it.admitted), "{name}: the first pass");
        assert!(answers[51..].iter().all(|it| !it.admitted), "{name}: all others are refused");
        assert_eq!(starts(&answers), spaced(answers[0].at, rate, 51), "{name}");
    }
    assert!(store.counters().calls <= 6, "{:?}", store.counters());
}

#[tokio::test]
async fn two_nodes_share_one_queue() {
    let redis = Redis::start();
    let nodes = [0, 1].map(|_| Arc::new(store(&[redis.url()])));
    let rate = Rate::per_hour(10);
    let rule = queue("nodes", rate, 50);
    let ask = |_| (rule.clone(), b"hot".to_vec(), Amount::Exactly(1));
    let (one, two) = tokio::join!(crowd(&nodes[0], 500, ask), crowd(&nodes[1], 500, ask));
    for node in [&one, &two] {
        let of_node = starts(node);
        assert!(of_node.is_sorted(), "first come, first served");
    }
    let mut all = [starts(&one), starts(&two)].concat();
    all.sort_unstable();
    assert_eq!(all, spaced(all[0], rate, 51));
}

fn queue(name: &str, rate: Rate, length: u64) -> Rule {
    Rule::new(name, Bucket::new(rate).unwrap().with_queue(Queue::new(length)).unwrap())
}

/// Returns times that are spaced by the rate, rounded up.
fn spaced(first: Timestamp, rate: Rate, count: u64) -> Vec<Timestamp> {
    let after = |nth: u64| Span::from_micros((nth * rate.period.as_micros()).div_ceil(rate.count));
    (0..count).map(|nth| first + after(nth)).collect()
}

#[tokio::test]
async fn requests_for_one_key_under_different_quotas_are_counted_once_each() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    store.connect().await.unwrap();
    let day = Window::Anchored(Span::from_days(1));
    let tally = |at: usize| Rule::new("tally", FixedWindow::tally(200 + at as u64 % 3, day.clone()).unwrap());
    let bucket = |at: usize| {
        let burst = 200 + at as u64 % 3;
        Rule::new("bucket", Bucket::new(Rate::per_hour(1)).unwrap().with_burst(burst).unwrap().shared())
    };
    let answers = crowd(&store, 100, |at| (tally(at), b"hot".to_vec(), Amount::Exactly(1))).await;
    assert!(answers.iter().all(|it| it.admitted));
    let answers = crowd(&store, 100, |at| (bucket(at), b"hot".to_vec(), Amount::Exactly(1))).await;
    assert!(answers.iter().all(|it| it.admitted));
    for rule in [tally(0), bucket(0)] {
        let look = store.decide(&[Check::new(&rule, b"hot", 0)]).await.unwrap();
        assert_eq!(look.outcomes[0].remaining, 100, "{}: none was lost, none counted twice", rule.name);
    }
}

#[tokio::test]
async fn a_shared_bucket_is_kept_as_long_as_its_debt() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    let shared =
        |rate, burst| Rule::new("shared", Bucket::new(rate).unwrap().with_burst(burst).unwrap().shared());
    let (small, large) = (shared(Rate::per_second(100), 2), shared(Rate::per_minute(60), 3_600));
    for owed in [10, 20, 40, 600] {
        assert!(store.decide(&[Check::new(&small, b"key", 1)]).await.unwrap().admitted);
        assert!(store.decide(&[Check::new(&large, b"key", owed)]).await.unwrap().admitted);
        let ttl: u64 = redis.cli(&["PTTL", redis.cli(&["KEYS", "*"]).trim()]).trim().parse().unwrap();
        // The commands took some time.
        assert!(ttl + 5_000 > 1_000 * owed, "what is owed for {owed} s is kept for {ttl} ms");
        store.adjust(&large, b"key", Adjustment::Reset).await.unwrap();
    }
}

#[tokio::test]
async fn one_at_a_time_costs_one_call_each() {
    let redis = Redis::start();
    let (store, rule) = (store(&[redis.url()]), hourly("alone", 100));
    for _ in 0..50 {
        assert!(store.decide(&[Check::new(&rule, b"key", 1)]).await.unwrap().admitted);
    }
    assert_eq!(store.counters().calls, 50);
    let stats = redis.cli(&["INFO", "commandstats"]);
    let calls = |command: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|it| it.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    assert_eq!((calls("evalsha"), calls("eval")), (50, 1), "and the script is sent once");
}

#[tokio::test]
async fn different_costs_for_one_key_are_admitted_in_order() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    store.connect().await.unwrap();
    let rule = hourly("costs", 10);
    let answers =
        crowd(&store, 6, |at| (rule.clone(), b"hot".to_vec(), Amount::Exactly([4, 4, 4, 2, 1, 0][at]))).await;
    let admitted: Vec<_> = answers.iter().map(|it| it.admitted).collect();
    assert_eq!(admitted, [true, true, false, true, false, true]);
}

/// Four stores, each on its own thread, like four processes.
fn admitted_by_four_stores(urls: &[String], quota: &Quota, name: &str) -> usize {
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let (urls, rule) = (urls.to_vec(), Rule::new(name, quota.clone()));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let store = Arc::new(store(&urls));
                    let slots = matches!(rule.quota, Quota::Concurrency(_));
                    let answers = crowd(&store, 300, |at| {
                        let owner = Owner(u128::from(thread) << 64 | at as u128);
                        let amount = if slots { Amount::Slot(owner) } else { Amount::Exactly(1) };
                        (rule.clone(), b"everybody".to_vec(), amount)
                    });
                    answers.await.iter().filter(|it| it.admitted).count()
                })
            })
        })
        .collect();
    threads.into_iter().map(|it| it.join().unwrap()).sum()
}

fn never_one_more(urls: &[String]) {
    let rate = Rate::per_day(100);
    let quotas = [
        ("bucket", Quota::from(Bucket::new(rate).unwrap())),
        ("window", FixedWindow::anchored(rate).unwrap().into()),
        ("sliding", SlidingWindow::new(rate).unwrap().into()),
        ("parts", SlidingParts::new(rate, 7).unwrap().into()),
        ("log", SlidingLog::new(rate).unwrap().into()),
        ("slots", Concurrency::new(100, Span::from_hours(1)).unwrap().into()),
    ];
    for (name, quota) in quotas {
        assert_eq!(admitted_by_four_stores(urls, &quota, &format!("one more/{name}")), 100, "{name}");
    }
}

#[test]
fn twelve_hundred_concurrent_requests_admit_a_hundred_on_one_server() {
    let redis = Redis::start();
    never_one_more(&[redis.url()]);
}

#[test]
fn twelve_hundred_concurrent_requests_admit_a_hundred_behind_sentinels() {
    let trio = SentinelTrio::start();
    never_one_more(&[trio.url()]);
}

#[test]
fn twelve_hundred_concurrent_requests_admit_a_hundred_on_a_cluster() {
    let cluster = RedisCluster::start();
    never_one_more(&cluster.urls());
    all_or_nothing_across_partitions(&cluster.urls());
}

/// Requests by user and for all users: the keys are in different partitions.
fn all_or_nothing_across_partitions(urls: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(async {
        let stores: Vec<_> = (0..3).map(|_| Arc::new(store(urls))).collect();
        let (all, own) = (Arc::new(hourly("all", 50)), Arc::new(hourly("own", 10)));
        let tasks: Vec<_> = (0..600)
            .map(|at: usize| {
                let (store, all, own) = (Arc::clone(&stores[at % 3]), Arc::clone(&all), Arc::clone(&own));
                tokio::spawn(async move {
                    let user = format!("user-{}", at % 20);
                    let checks = [Check::new(&own, user.as_bytes(), 1), Check::new(&all, b"all", 1)];
                    store.decide(&checks).await.unwrap().admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += usize::from(task.await.unwrap());
        }
        assert!(admitted <= 50, "{admitted} of 50");
        // The remaining units add up: only admitted requests were charged.
        let left = |rule: Arc<Rule>, key: String| {
            let store = Arc::clone(&stores[0]);
            async move {
                store.decide(&[Check::new(&rule, key.as_bytes(), 0)]).await.unwrap().outcomes[0].remaining
            }
        };
        assert_eq!(left(Arc::clone(&all), "all".into()).await, 50 - admitted as u64);
        let mut spent = 0;
        for user in 0..20 {
            spent += 10 - left(Arc::clone(&own), format!("user-{user}")).await;
        }
        assert_eq!(spent, admitted as u64);
    });
}

#[tokio::test]
async fn requests_beyond_the_size_of_a_call_are_split() {
    let redis = Redis::start();
    let store = Arc::new(store(&[redis.url()]));
    store.connect().await.unwrap();
    let rule = hourly("many", 1);
    let answers = crowd(&store, 20_000, |at| {
        (rule.clone(), format!("{}", at % 10_000).into_bytes(), Amount::Exactly(1))
    })
    .await;
    assert_eq!(answers.iter().filter(|it| it.admitted).count(), 10_000, "each key once");
    // No unit is restored during the test, even on a slow machine.
    let slow = Bucket::new(Rate::per_day(1_000)).unwrap().with_burst(100_000).unwrap();
    let costs = Rule::new("mixed", slow);
    let answers =
        crowd(&store, 10_000, |at| (costs.clone(), b"hot".to_vec(), Amount::Exactly(1 + at as u64 % 3)))
            .await;
    assert!(answers.iter().all(|it| it.admitted));
    assert_eq!(answers.iter().map(|it| it.outcomes[0].remaining).min(), Some(100_000 - 19_999));
}
