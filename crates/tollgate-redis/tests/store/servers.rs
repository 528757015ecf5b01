//! The behavior of the store with unusual servers: restarts, foreign data, ACLs, TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use tollgate_core::{
    Adjustment, Amount, Bucket, Calendar, CalendarUnit, ChargeTimes, Concurrency, FixedWindow, Owner, Quota,
    Rate, Rule, SlidingLog, SlidingParts, SlidingWindow, Span, Window,
};
use tollgate_redis::{RedisSettings, RedisStore, Tls};
use tollgate_store::node_board::Question;
use tollgate_store::{Check, Store, StoreError};
use tollgate_testkit::{Redis, RedisCluster};

use crate::support::{patient, store};

fn hourly(name: &str, units: u64) -> Rule {
    Rule::new(name, Bucket::new(Rate::per_hour(units)).unwrap())
}

async fn left(store: &RedisStore, rule: &Rule) -> Result<u64, StoreError> {
    Ok(store.decide(&[Check::new(rule, b"key", 1)]).await?.outcomes[0].remaining)
}

/// Formats an error with its sources.
fn in_full(error: &StoreError) -> String {
    use std::error::Error;
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    format!("{error}: {cause}")
}

fn each() -> Vec<Quota> {
    let rate = Rate::per_minute(5);
    vec![
        Bucket::new(rate).unwrap().into(),
        Bucket::new(Rate::new(7, Span::from_micros(59_999_999))).unwrap().into(),
        FixedWindow::epoch(rate).unwrap().into(),
        FixedWindow::anchored(rate).unwrap().into(),
        FixedWindow::new(5, Window::Calendar(Calendar::new(CalendarUnit::Day, "Europe/Paris").unwrap()))
            .unwrap()
            .into(),
        SlidingWindow::new(rate).unwrap().into(),
        SlidingParts::new(rate, 3).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
        Concurrency::new(5, Span::from_secs(60)).unwrap().into(),
    ]
}

#[tokio::test]
async fn every_key_expires_by_itself_and_not_before_it_counts() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    for (at, quota) in each().into_iter().enumerate() {
        let rule = Rule::new(&format!("expires/{at}"), quota);
        let amount = if matches!(rule.quota, Quota::Concurrency(_)) {
            Amount::Slot(Owner(1))
        } else {
            Amount::Exactly(2)
        };
        let taken = store.decide(&[Check { amount, ..Check::new(&rule, b"key", 1) }]).await.unwrap();
        let keys = redis.cli(&["KEYS", &format!("*:{:016x}:*", rule.id.0)]);
        let ttl: i64 = redis.cli(&["PTTL", keys.trim()]).parse().unwrap();
        let counts = i64::try_from(taken.outcomes[0].reset_after.as_millis_ceil()).unwrap();
        let longest = counts + i64::try_from(rule.quota.period().as_millis_ceil()).unwrap() / 16 + 2_000;
        assert!(ttl > counts - 2_000 && ttl <= longest, "{}: {ttl} ms for {counts}", rule.quota);
        store
            .decide(&[Check { amount: Amount::Exactly(0), ..Check::new(&rule, b"stranger", 0) }])
            .await
            .unwrap();
        store.adjust(&rule, b"stranger", Adjustment::Grant { units: 1 }).await.unwrap();
        store.adjust(&rule, b"key", Adjustment::Reset).await.unwrap();
        assert_eq!(redis.cli(&["DBSIZE"]), "0", "{}: looking leaves nothing, a reset neither", rule.quota);
    }
}

#[tokio::test]
async fn a_key_of_seven_parts_takes_sixty_four_bytes_and_is_not_taken_for_another() {
    let redis = Redis::start();
    let rule = Rule::new("seven", SlidingParts::new(Rate::new(5_000, Span::from_secs(60)), 7).unwrap());
    let store = store(&[redis.url()]);
    while redis.cli(&["STRLEN", redis.cli(&["KEYS", "tg1:*:*:*"]).trim()]) != "64" {
        assert!(left(&store, &rule).await.unwrap() > 0, "seven instants in five thousand");
    }
    for _ in 0..100 {
        left(&store, &rule).await.unwrap();
    }
    let name = redis.cli(&["KEYS", &format!("*:{:016x}:*", rule.id.0)]);
    assert_eq!(redis.cli(&["STRLEN", &name]), "64", "and stays so");
    redis.cli(&["SET", &name, &"x".repeat(64)]);
    assert!(matches!(left(&store, &rule).await, Err(StoreError::Foreign(_))));
    assert_eq!(redis.cli(&["GET", &name]), "x".repeat(64), "it is left alone");
}

#[tokio::test]
async fn a_script_that_was_flushed_is_sent_again() {
    let redis = Redis::start();
    let (store, rule) = (store(&[redis.url()]), hourly("flushed", 10));
    assert_eq!(left(&store, &rule).await.unwrap(), 9);
    redis.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(left(&store, &rule).await.unwrap(), 8);
}

#[tokio::test]
async fn foreign_data_is_left_alone_and_affects_no_other_key() {
    let redis = Redis::start();
    let store = store(&[redis.url()]);
    for (at, quota) in each().into_iter().enumerate() {
        let rule = Rule::new(&format!("foreign/{at}"), quota);
        let slots = matches!(rule.quota, Quota::Concurrency(_));
        let amount = if slots { Amount::Slot(Owner(1)) } else { Amount::Exactly(1) };
        let check = Check { amount, ..Check::new(&rule, b"key", 1) };
        store.decide(&[check]).await.unwrap();
        let name = redis.cli(&["KEYS", &format!("*:{:016x}:*", rule.id.0)]);
        for (command, kind) in
            [(vec!["RPUSH", &name, "x"], "list"), (vec!["SET", &name, "somebody's"], "string")]
        {
            redis.cli(&["DEL", &name]);
            redis.cli(&command);
            let reply = store.decide(&[check]).await;
            assert!(matches!(reply, Err(StoreError::Foreign(_))), "{} on a {kind}: {reply:?}", rule.quota);
            assert!(matches!(
                store.adjust(&rule, b"key", Adjustment::Reset).await,
                Err(StoreError::Foreign(_))
            ));
            assert_eq!(redis.cli(&["TYPE", &name]), kind, "it is still there");
            let both = [check, Check { key: b"other", ..check }];
            assert!(store.decide(&both).await.is_err(), "all or nothing");
            let other =
                store.decide(&[Check { key: b"other", amount: Amount::Exactly(0), ..check }]).await.unwrap();
            assert_eq!(
                other.outcomes[0].remaining,
                rule.quota.capacity(),
                "{}: the other key is not charged",
                rule.quota
            );
        }
        redis.cli(&["DEL", &name]);
    }
}

#[tokio::test]
async fn the_deadline_includes_connecting() {
    let redis = Redis::start();
    let settings = RedisSettings { deadline: Duration::from_millis(50), ..patient(&[redis.url()]) };
    let (store, rule) = (RedisStore::new(settings), hourly("deadline", 10));
    store.connect().await.unwrap();
    left(&store, &rule).await.unwrap();
    redis.pause();
    let begun = Instant::now();
    assert!(matches!(left(&store, &rule).await, Err(StoreError::TimedOut(_))), "it may have landed");
    for _ in 0..5 {
        assert!(left(&store, &rule).await.is_err());
    }
    // Generous: the test checks that no request waits for the five seconds of a reconnect.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    redis.kill();
    let refused = left(&store, &rule).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_) | StoreError::Failed(_) | StoreError::TimedOut(_)));
    redis.restart();
    let begun = Instant::now();
    while left(&store, &rule).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is found again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn tls_and_access_control_work() {
    let redis = Redis::start_with_tls();
    let mut settings = patient(&[redis.url()]);
    settings.tls = Some(Tls { ca: Some(std::fs::read(redis.ca()).unwrap()), client: None });
    assert_eq!(left(&RedisStore::new(settings.clone()), &hourly("tls", 10)).await.unwrap(), 9);
    settings.tls = Some(Tls::default());
    let stranger = RedisStore::new(settings).connect().await.unwrap_err();
    assert!(in_full(&stranger).to_lowercase().contains("certificate"), "{}", in_full(&stranger));

    let redis = Redis::start_with_password(Some("tollgate"), "s3cret");
    assert_eq!(left(&store(&[redis.url()]), &hourly("acl", 10)).await.unwrap(), 9);
    for password in [Some("wrong".to_owned()), None] {
        let mut settings = patient(&[redis.url()]);
        settings.username = password.as_ref().and(settings.username);
        settings.password = password;
        let reply = in_full(&RedisStore::new(settings).connect().await.unwrap_err());
        assert!(reply.contains("user or password is wrong") && !reply.contains("s3cret"), "{reply}");
    }
}

#[tokio::test]
async fn a_user_needs_no_more_than_the_documented_commands() {
    let redis = Redis::start();
    let readme = include_str!("../../README.md");
    let rule =
        readme.lines().find_map(|line| line.strip_prefix("ACL SETUSER ")).expect("the README has the line");
    let words: Vec<_> = ["ACL", "SETUSER"].into_iter().chain(rule.split_whitespace()).collect();
    redis.cli(&words);
    let url = format!("redis://tollgate:SECRET@{}", redis.address());
    let store = store(&[url]);
    store.connect().await.unwrap();
    for (at, quota) in each().into_iter().enumerate() {
        let rule = Rule::new(&format!("acl/{at}"), quota);
        let slots = matches!(rule.quota, Quota::Concurrency(_));
        let amount = if slots { Amount::Slot(Owner(1)) } else { Amount::Exactly(1) };
        store.decide(&[Check { amount, ..Check::new(&rule, b"key", 1) }]).await.unwrap();
        let answer = store.decide(&[Check { amount, ..Check::new(&rule, b"key", 1) }]).await.unwrap();
        let charge = ChargeTimes::of(answer.at, &answer.outcomes[0]);
        for adjustment in [
            Adjustment::Refund { units: 1, charge },
            Adjustment::Grant { units: 1 },
            Adjustment::Release { owner: Owner(1) },
            Adjustment::Reset,
        ] {
            store.adjust(&rule, b"key", adjustment).await.unwrap();
        }
    }
    let announced = tokio::time::timeout(Duration::from_millis(500), store.announce()).await;
    assert!(announced.is_err() && !redis.cli(&["KEYS", "tg1:*:nodes"]).is_empty(), "nodes too");
    let board = store.node_board();
    board.publish(b"record").await.unwrap();
    assert_eq!(board.read().await.unwrap().records.len(), 1);
    assert_eq!(board.ask(Question(1)).await.unwrap(), None);
    board.answer(Question(1), b"answer").await.unwrap();
    board.withdraw().await.unwrap();
}

#[tokio::test]
async fn nodes_are_counted_while_they_announce_themselves() {
    let redis = Redis::start();
    let stores: Vec<_> = (0..3).map(|_| store(&[redis.url()])).collect();
    for store in &stores {
        let _ = tokio::time::timeout(Duration::from_millis(300), store.announce()).await;
    }
    assert_eq!(stores.iter().map(Store::nodes).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test]
async fn errors_explain_a_cluster_url_mistake_and_uncovered_slots() {
    let cluster = RedisCluster::start();
    let url = cluster.urls().remove(0);
    let reply = in_full(&store(&[url]).connect().await.unwrap_err());
    assert!(reply.contains("write `redis-cluster://`"), "{reply}");
    let (store, rule) = (store(&cluster.urls()), hourly("holes", 10));
    left(&store, &rule).await.unwrap();
    let name = cluster.node(0).try_cli(&["KEYS", "*"]).unwrap_or_default();
    let name =
        (0..6).map(|at| cluster.node(at).cli(&["KEYS", "tg1*"])).find(|it| !it.is_empty()).unwrap_or(name);
    cluster.uncover(cluster.slot_of(name.lines().next().unwrap()));
    let reply = in_full(&left(&store, &rule).await.unwrap_err());
    assert!(reply.contains("not covered") || reply.contains("no answer"), "{reply}");
}

/// A fake server that reports a version without support for reading the clock in scripts.
#[tokio::test]
async fn an_old_server_is_refused_with_its_version() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut heard = [0; 4096];
            while let Ok(some @ 1..) = stream.read(&mut heard) {
                for word in String::from_utf8_lossy(&heard[..some]).to_uppercase().split("\r\n") {
                    let reply: &[u8] = match word {
                        "INFO" => b"$22\r\nredis_version:3.2.12\r\n\r\n",
                        "CLIENT" | "SELECT" | "HELLO" | "AUTH" => b"-ERR unknown command\r\n",
                        _ => continue,
                    };
                    if stream.write_all(reply).is_err() {
                        break;
                    }
                }
            }
        }
    });
    let reply = in_full(&store(&[format!("redis://{address}")]).connect().await.unwrap_err());
    assert!(reply.contains("Redis 3.2.12 is too old"), "{reply}");
}

#[tokio::test]
async fn a_probe_fails_when_a_decision_would() {
    let (redis, primary) = (Redis::start(), Redis::start());
    let store = store(&[redis.url()]);
    store.probe().await.unwrap();
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "and leaves nothing behind");
    redis.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    assert!(in_full(&store.probe().await.unwrap_err()).contains("this is a replica"));
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    redis.kill();
    assert!(store.probe().await.is_err());
}

#[tokio::test]
async fn the_documented_user_is_enough_on_a_cluster_whose_slots_move() {
    let cluster = RedisCluster::start();
    let readme = include_str!("../../README.md");
    let rule =
        readme.lines().find_map(|line| line.strip_prefix("ACL SETUSER ")).expect("the README has the line");
    assert!(readme.contains("A cluster needs `+cluster|slots +asking` as well."));
    for node in 0..6 {
        let words = ["ACL", "SETUSER"].into_iter().chain(rule.split_whitespace());
        let words: Vec<_> = words.chain(["+cluster|slots", "+asking"]).collect();
        cluster.node(node).cli(&words);
    }
    let urls: Vec<_> =
        (0..6).map(|at| format!("redis://tollgate:SECRET@{}", cluster.node(at).address())).collect();
    let (store, rule) = (store(&urls), hourly("moving", 10));
    assert_eq!(left(&store, &rule).await.unwrap(), 9);
    let name = (0..6).map(|at| cluster.node(at).cli(&["KEYS", "tg1*"])).find(|it| !it.is_empty()).unwrap();
    let slot = cluster.slot_of(name.lines().next().unwrap());
    let from = cluster.primary_of_slot(slot);
    let to = (0..6).find(|&at| at != from && cluster.node(at).cli(&["ROLE"]).starts_with("master")).unwrap();
    // While the slot migrates, missing keys are requested from the other node.
    cluster.open_slot(slot, to);
    let other = hourly("moving too", 10);
    assert_eq!(left(&store, &rule).await.unwrap(), 8);
    assert_eq!(left(&store, &other).await.unwrap(), 9);
    assert_eq!(left(&store, &other).await.unwrap(), 8);
}
