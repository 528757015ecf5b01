//! Requests across owners, and callers that are no peers.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::{Adjustment, Amount, Bucket, Concurrency, Owner, Rate, Rule, Span};
use tollgate_peers::{Served, VERSION};
use tollgate_store::{AdjustmentId, Check, Repeatable, Store as _};

use crate::support::{DEADLINE, Nodes, settle};

fn hourly(name: &str, units: u64) -> Rule {
    Rule::new(name, Bucket::new(Rate::per_hour(units)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_to_all_nodes_share_one_budget_exactly() {
    let nodes = Nodes::start(3);
    let rule = hourly("api", 100);
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            let (store, rule) = (nodes.stores[number % 3].clone(), rule.clone());
            tokio::spawn(async move {
                let mut admitted = [0; 3];
                for round in 0..60 {
                    let key = [b"abc"[round % 3]];
                    let answer = store.decide(&[Check::new(&rule, &key, 1)]).await.unwrap();
                    admitted[round % 3] += usize::from(answer.admitted);
                }
                admitted
            })
        })
        .collect();
    let mut total = [0; 3];
    for task in tasks {
        let admitted = task.await.unwrap();
        (0..3).for_each(|at| total[at] += admitted[at]);
    }
    assert_eq!(total, [100; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_charges_no_owner() {
    let nodes = Nodes::start(3);
    let (wide, narrow) = (hourly("wide", 10), hourly("narrow", 1));
    let keys: Vec<_> = (0..3).map(|node| nodes.key_of(node, 0)).collect();
    let batch =
        [Check::new(&wide, &keys[0], 1), Check::new(&wide, &keys[1], 1), Check::new(&narrow, &keys[2], 1)];
    for (nth, store) in nodes.stores.iter().enumerate() {
        let answer = store.decide(&batch).await.unwrap();
        assert_eq!(answer.admitted, nth == 0);
        let left: Vec<_> = answer.outcomes.iter().map(|it| it.remaining).collect();
        assert_eq!(left, [9, 9, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_its_owner_holds_survives_a_refused_request() {
    let nodes = Nodes::start(2);
    let slots = Rule::new("slots", Concurrency::new(1, Span::from_secs(30)).unwrap());
    let (held, narrow) = (nodes.key_of(1, 0), nodes.key_of(0, 0));
    let rate = hourly("rate", 1);
    let slot = |owner| Check { amount: Amount::Slot(Owner(owner)), ..Check::new(&slots, &held, 1) };
    let store = &nodes.stores[0];
    let both = [slot(1), Check::new(&rate, &narrow, 1)];
    assert!(store.decide(&both).await.unwrap().admitted);
    assert!(!store.decide(&both).await.unwrap().admitted, "the rate refuses");
    assert!(!store.decide(&[slot(2)]).await.unwrap().admitted, "the slot is still held");
    store.adjust(&slots, &held, Adjustment::Release { owner: Owner(1) }).await.unwrap();
    assert!(store.decide(&[slot(2)]).await.unwrap().admitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adjustment_with_an_id_is_made_once() {
    let nodes = Nodes::start(2);
    let rule = hourly("api", 10);
    for node in 0..2 {
        let key = nodes.key_of(node, 0);
        let charge = Adjustment::Charge { units: 3, overdraft: tollgate_core::Overdraft::None };
        for _ in 0..3 {
            let outcome = nodes.stores[0]
                .adjust_once(&rule, &key, Repeatable::new(charge, AdjustmentId(node as u128)))
                .await;
            assert_eq!(outcome.unwrap().remaining, 7);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_of_nodes_may_differ() {
    // Each node has its own clock here, hours apart: only durations and converted times are used.
    let one = Nodes::start(1);
    let other = Nodes::start(1);
    other.clock.advance(Span::from_hours(5));
    let members = [one.address(0), other.address(0)];
    one.stores[0].set_members(&members, Some(&members[0]));
    other.stores[0].set_members(&members, Some(&members[1]));
    settle(&[&one.stores[0], &other.stores[0]]);
    let (store, rule) = (&one.stores[0], hourly("api", 10));
    let key = (0..=u8::MAX).map(|it| [it]).find(|key| store.owner(key) == Some(members[1].clone())).unwrap();
    let answer = store.decide(&[Check::new(&rule, &key, 4)]).await.unwrap();
    assert_eq!(answer.at, tollgate_store::Clock::now(&one.clock), "by the clock of the caller");
    let charge = tollgate_core::ChargeTimes::of(answer.at, &answer.outcomes[0]);
    let refunded = store.adjust(&rule, &key, Adjustment::Refund { units: 4, charge }).await.unwrap();
    assert_eq!(refunded.remaining, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_versions_and_garbage_are_refused() {
    let nodes = Nodes::start(1);
    let store = &nodes.stores[0];
    let version = VERSION.to_string();
    let serve = |version: &[u8], payload: &[u8]| match store.serve(version, payload) {
        Served::Now(reply) => reply,
        Served::Later(_) => panic!("a call that is refused waits for nothing"),
    };
    let refused = serve(b"1", b"").unwrap_err();
    assert!(refused.starts_with("PEERVERSION this node speaks version 2"), "{refused}");
    let mut seen = HashSet::new();
    for payload in [&b""[..], b"\xff", b"hello there", &vec![1; 60_000]] {
        seen.insert(serve(version.as_bytes(), payload).unwrap_err());
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["ERR the bytes are not a call between peers, or are damaged"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_are_sent_together_are_decided_in_order_by_their_holders() {
    let nodes = Nodes::start(3);
    let (store, rule, wide) = (&nodes.stores[0], hourly("api", 5), hourly("wide", 1_000));
    let keys: Vec<_> = (0..3).map(|node| nodes.key_of(node, 0)).collect();
    let checks: Vec<Vec<Check<'_>>> = (0..24)
        .map(|number| {
            let key = |at: usize| &*keys[at % 3];
            // Some requests have keys of two holders.
            let second = (number % 4 == 3).then(|| Check::new(&wide, key(number + 1), 1));
            [Some(Check::new(&rule, key(number), 1)), second].into_iter().flatten().collect()
        })
        .collect();
    let batches: Vec<&[Check<'_>]> = checks.iter().map(Vec::as_slice).collect();
    let before = store.counters();
    let answers = store.decide_all(&batches).await;
    let remaining = |node: usize| {
        let of_node = answers.iter().enumerate().filter(|(number, _)| number % 3 == node && number % 4 != 3);
        let left = of_node.map(|(_, answer)| {
            let answer = answer.as_ref().unwrap();
            (answer.admitted, answer.outcomes[0].remaining)
        });
        left.collect::<Vec<_>>()
    };
    for node in 0..3 {
        assert_eq!(
            answers.iter().skip(node).step_by(3).filter(|it| it.as_ref().unwrap().admitted).count(),
            5
        );
        // In the order of the requests, whatever those with two holders have taken in between.
        assert!(
            remaining(node).is_sorted_by(|one, next| one.1 > next.1 || next.1 == 0),
            "{:?}",
            remaining(node)
        );
    }
    assert_eq!(store.counters().failures, before.failures);
    assert!(store.decide_all(&[]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_sent_together_follow_partitions_that_have_moved() {
    let nodes = Nodes::start(3);
    let rule = hourly("api", 100);
    let keys: Vec<_> = (0..60).map(|number| nodes.key_of(2, number)).collect();
    let checks: Vec<_> = keys.iter().map(|key| [Check::new(&rule, key, 1)]).collect();
    let all: Vec<&[Check<'_>]> = checks.iter().map(<[_; 1]>::as_slice).collect();
    let take = async |store: &tollgate_peers::PeerStore<_>| {
        let (mut batches, mut remaining) = (all.clone(), HashSet::new());
        let start = std::time::Instant::now();
        while !batches.is_empty() {
            let answers = store.decide_all(&batches).await;
            let mut answers = answers.into_iter();
            // A partition that moves more often than a request follows it is refused without a charge, so it is asked again.
            batches.retain(|_| match answers.next().unwrap() {
                Ok(answer) => {
                    remaining.insert(answer.outcomes[0].remaining);
                    false
                }
                Err(error) => {
                    assert!(!error.is_in_doubt() && start.elapsed() < DEADLINE, "{error:?}");
                    true
                }
            });
        }
        remaining
    };
    assert_eq!(take(&nodes.stores[0]).await, HashSet::from([99]));
    // The third node leaves the lists of the others, and gives its partitions up.
    let members = [nodes.address(0), nodes.address(1)];
    nodes.stores[1].set_members(&members, Some(&members[1]));
    nodes.stores[2].set_members(&members, None);
    assert_eq!(take(&nodes.stores[0]).await, HashSet::from([98]), "nothing is forgotten, whoever holds it");
    nodes.stores[0].set_members(&members, Some(&members[0]));
    settle(&[&nodes.stores[0], &nodes.stores[1]]);
    assert_eq!(take(&nodes.stores[0]).await, HashSet::from([97]));
    assert_eq!(take(&nodes.stores[1]).await, HashSet::from([96]));
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_whose_caller_leaves_are_undone() {
    let nodes = Nodes::start(2);
    let (rule, key) = (hourly("api", 1_000), nodes.key_of(1, 0));
    let check = [Check::new(&rule, &key, 1)];
    let batches: Vec<&[Check<'_>]> = vec![&check[..]; 50];
    let hold = &nodes.servers[1].as_ref().unwrap().hold;
    hold.is_on.store(true, Ordering::SeqCst);
    let arrived = async {
        while !hold.has_arrived.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = nodes.stores[0].decide_all(&batches) => panic!("the holder stands still"),
        () = arrived => {}
    }
    // The caller has left, and the holder continues.
    hold.is_on.store(false, Ordering::SeqCst);
    let left = async || {
        let peek = nodes.stores[1].decide(&[Check::new(&rule, &key, 0)]).await;
        peek.unwrap().outcomes[0].remaining
    };
    // The calls of this answer are written after those that charged, and before those that undo.
    assert!(nodes.stores[0].decide_all(&batches).await.iter().all(|it| it.as_ref().unwrap().admitted));
    let start = std::time::Instant::now();
    while left().await < 950 {
        assert!(start.elapsed() < DEADLINE, "{} are left", left().await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(left().await, 950);
}
