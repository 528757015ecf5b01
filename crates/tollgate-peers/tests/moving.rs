//! Changed lists of peers: usage moves with its keys, and no key has two holders.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Bucket, FixedWindow, Rate, Rule, SlidingLog, SlidingParts, SlidingWindow, Span};
use tollgate_net::Sockets;
use tollgate_peers::{Address, PeerStore};
use tollgate_store::{Check, ManualClock, MemoryStore, Store as _};

use crate::support::{Nodes, Server, settle};

type TestStore = PeerStore<ManualClock>;

const KEYS: usize = 60;

fn hourly(units: u64) -> Rule {
    Rule::new("api", Bucket::new(Rate::per_hour(units)).unwrap())
}

fn key(number: usize) -> Vec<u8> {
    format!("user-{number}").into_bytes()
}

async fn take(store: &TestStore, rule: &Rule, number: usize, units: u64) -> (bool, u64) {
    let answer = store.decide(&[Check::new(rule, &key(number), units)]).await.unwrap();
    (answer.admitted, answer.outcomes[0].remaining)
}

/// Returns the nodes, of which only the first `members` are in the list, and the addresses of all.
fn start(count: usize, members: usize) -> (Nodes, Vec<Address>) {
    let mut addresses = Vec::new();
    let nodes = Nodes::start_with(count, |number, mut settings| {
        settings.members.truncate(members);
        settings.advertise = settings.advertise.filter(|_| number < members);
        settings
    });
    for (number, store) in nodes.stores.iter().enumerate() {
        addresses.push(store.here().unwrap_or_else(|| nodes.listener(number)));
    }
    (nodes, addresses)
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_moves_to_a_node_that_joins_and_back_when_it_leaves() {
    let rate = Rate::per_hour(10);
    let quotas: [Rule; 6] = [
        Rule::new("bucket", Bucket::new(rate).unwrap()),
        Rule::new("fixed", FixedWindow::epoch(rate).unwrap()),
        Rule::new("anchored", FixedWindow::anchored(rate).unwrap()),
        Rule::new("sliding", SlidingWindow::new(rate).unwrap()),
        Rule::new("parts", SlidingParts::new(rate, 8).unwrap()),
        Rule::new("log", SlidingLog::new(rate).unwrap()),
    ];
    let (nodes, addresses) = start(3, 2);
    for rule in &quotas {
        for number in 0..KEYS {
            assert_eq!(take(&nodes.stores[2], rule, number, 4).await, (true, 6));
        }
    }
    let before: Vec<_> = (0..KEYS).map(|it| nodes.stores[0].owner(&key(it))).collect();
    // It joins; then the first node leaves, and answers as long as it runs.
    for (list, left) in [(&addresses[..], 6), (&addresses[1..], 3)] {
        nodes.set_lists(list, &addresses);
        nodes.settle();
        for rule in &quotas {
            for number in 0..KEYS {
                let store = &nodes.stores[number % 3];
                assert_eq!(take(store, rule, number, 3).await, (true, left - 3), "{} {number}", rule.name);
                assert_eq!(take(store, rule, number, left).await, (false, left - 3));
            }
        }
    }
    let moved = (0..KEYS).filter(|it| nodes.stores[0].owner(&key(*it)) != before[*it]).count();
    let carried: u64 = nodes.stores.iter().map(|it| it.counters().carried).sum();
    let lost: u64 = nodes.stores.iter().map(|it| it.counters().lost).sum();
    assert!(
        moved > 20 && carried >= 6 * moved as u64 && lost == 0,
        "{moved} moved, {carried} carried, {lost} lost"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_never_asked_for_moves_through_several_holders() {
    let (nodes, addresses) = start(4, 1);
    let rule = hourly(10);
    for number in 0..KEYS {
        take(&nodes.stores[0], &rule, number, 9).await;
    }
    for list in [&addresses[1..2], &addresses[2..3], &addresses[3..]] {
        nodes.set_lists(list, &addresses);
        nodes.settle();
    }
    for number in 0..KEYS {
        assert_eq!(take(&nodes.stores[1], &rule, number, 1).await, (true, 0));
        assert_eq!(take(&nodes.stores[2], &rule, number, 1).await, (false, 0));
    }
}

/// Takes ten units of each key on three nodes, and stops the third. Returns its keys.
async fn lose_the_third(rule: &Rule) -> (Nodes, Vec<Address>, Vec<usize>) {
    let (mut nodes, addresses) = start(3, 3);
    let is_lost = |it: &usize| nodes.stores[0].owner(&key(*it)).as_ref() == Some(&addresses[2]);
    let lost = (0..KEYS).filter(is_lost).collect();
    for number in 0..KEYS {
        take(&nodes.stores[0], rule, number, 10).await;
    }
    nodes.servers[2] = None;
    (nodes, addresses, lost)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_owner_leaves_its_keys_with_the_share_and_no_other() {
    let rule = hourly(100);
    let (mut nodes, addresses, lost) = lose_the_third(&rule).await;
    nodes.stores.pop();
    let shares = HashMap::from([(Rule::new("deny", Bucket::new(Rate::per_hour(9)).unwrap()).id, 0)]);
    nodes.stores.iter().for_each(|it| it.set_lost_shares(shares.clone()));
    nodes.set_lists(&addresses[..2], &addresses);
    nodes.settle();
    let deny = Rule::new("deny", Bucket::new(Rate::per_hour(9)).unwrap());
    for number in 0..KEYS {
        let is_lost = lost.contains(&number);
        let left = if is_lost { 20 } else { 90 };
        assert_eq!(take(&nodes.stores[number % 2], &rule, number, 1).await, (true, left - 1), "{number}");
        let (admitted, _) = take(&nodes.stores[number % 2], &deny, number, 1).await;
        assert_eq!(admitted, !is_lost, "nothing is left of a limit that refuses in an outage");
    }
    // The limit refills as usual.
    nodes.clock.advance(Span::from_hours(1));
    for number in 0..KEYS {
        assert_eq!(take(&nodes.stores[0], &rule, number, 1).await, (true, 99));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_owner_begins_with_the_share() {
    let rule = hourly(100);
    let (mut nodes, addresses, lost) = lose_the_third(&rule).await;
    let settings = nodes.stores[2].settings().clone();
    let memory = MemoryStore::with_seed(100_000, nodes.clock.clone(), 8);
    nodes.stores[2] = PeerStore::new(settings, memory, None);
    let sockets = Sockets::bind(&addresses[2].to_string(), 1).unwrap();
    nodes.servers[2] = Some(Server::start(sockets, &nodes.stores[2]));
    nodes.settle();
    for number in 0..KEYS {
        let left = if lost.contains(&number) { 20 } else { 90 };
        // Nodes whose connections broke reach it again after a pause.
        let start = std::time::Instant::now();
        let found = loop {
            match nodes.stores[number % 3].decide(&[Check::new(&rule, &key(number), 0)]).await {
                Ok(answer) => break answer.outcomes[0].remaining,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(30), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(found, left, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_lists_differ_a_key_has_one_holder() {
    let (nodes, addresses) = start(3, 3);
    let rule = hourly(30);
    for (store, list) in nodes.stores.iter().zip([&addresses[..2], &addresses[1..], &addresses[..]]) {
        let here = store.here();
        store.set_members(list, here.as_ref());
    }
    // Each node has its own list from now on, so the owners of the lists are not those that hold.
    let start = std::time::Instant::now();
    while nodes.stores.iter().map(|it| it.counters().held).sum::<usize>() != 256 {
        assert!(start.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for number in 0..KEYS {
        let mut admitted = 0;
        for round in 0..40 {
            let key = key(number);
            let check = [Check::new(&rule, &key, 1)];
            admitted += usize::from(nodes.stores[round % 3].decide(&check).await.is_ok_and(|it| it.admitted));
        }
        assert_eq!(admitted, 30, "{number}");
    }
}

/// A request overtakes the reply to the claim of the new holder: it is decided nevertheless, and not twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_holder_learns_of_a_grant_from_a_request() {
    let (nodes, addresses) = start(3, 2);
    let rule = hourly(10);
    for number in 0..KEYS {
        take(&nodes.stores[0], &rule, number, 9).await;
    }
    let servers: Vec<_> = nodes.servers.iter().flatten().collect();
    for server in &servers {
        server.pause();
    }
    servers[..2].iter().for_each(|it| it.loses_claims.store(true, Ordering::SeqCst));
    // The first round learns no holdings, because the replies are lost: it knows them from before.
    nodes.stores[2].set_members(&addresses, Some(&addresses[2]));
    assert!(nodes.stores[2].connect().await.is_err());
    let holds_nothing = nodes.stores[2].counters().held == 0;
    let was_granted = nodes.stores[..2].iter().map(|it| it.counters().held).sum::<usize>() < 256;
    assert!(holds_nothing && was_granted);
    for number in 0..KEYS {
        assert_eq!(take(&nodes.stores[0], &rule, number, 1).await, (true, 0), "{number}");
        assert_eq!(take(&nodes.stores[1], &rule, number, 1).await, (false, 0), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_a_lookup_are_the_members_and_usage_follows_them() {
    let (nodes, addresses) = start(3, 3);
    let found: Vec<SocketAddr> = addresses.iter().map(|it| it.to_string().parse().unwrap()).collect();
    let rule = hourly(10);
    for number in 0..KEYS {
        take(&nodes.stores[2], &rule, number, 4).await;
    }
    // The third is no member for a while; a lookup that finds nothing changes nothing.
    for (found, members, left) in [(&found[..2], 2, 6), (&[], 2, 5), (&found[..], 3, 4)] {
        for (store, address) in nodes.stores.iter().zip(&addresses) {
            store.use_addresses(found, address.port);
        }
        nodes.settle();
        assert!(nodes.stores.iter().all(|it| it.counters().members == members));
        assert_eq!(nodes.stores[2].here().is_some(), members == 3);
        for number in 0..KEYS {
            assert_eq!(take(&nodes.stores[number % 3], &rule, number, 1).await, (true, left - 1), "{number}");
        }
    }
}

/// Lists change all the time, at each node on its own, while all nodes spend: never one too many.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lists_that_change_under_load_admit_never_more_than_the_limit() {
    const LIMIT: u64 = 400;
    let (nodes, addresses) = start(3, 3);
    let (rule, is_done) = (hourly(LIMIT), Arc::new(AtomicBool::new(false)));
    let admitted: Arc<Vec<AtomicU64>> = Arc::new((0..12).map(|_| AtomicU64::new(0)).collect());
    let callers: Vec<_> = (0..6)
        .map(|caller| {
            let (store, rule) = (nodes.stores[caller % 3].clone(), rule.clone());
            let (admitted, is_done) = (Arc::clone(&admitted), Arc::clone(&is_done));
            tokio::spawn(async move {
                for round in caller.. {
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                    let number = round % admitted.len();
                    let key = key(number);
                    let checks = [Check::new(&rule, &key, 1)];
                    if store.decide(&checks).await.is_ok_and(|it| it.admitted) {
                        admitted[number].fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let at = rng.usize(..3);
        let mut list: Vec<_> = addresses.iter().filter(|_| rng.bool()).cloned().collect();
        if list.is_empty() {
            list.push(addresses[at].clone());
        }
        nodes.stores[at].set_members(&list, Some(&addresses[at]));
        tokio::time::sleep(Duration::from_millis(rng.u64(..25))).await;
    }
    nodes.set_lists(&addresses, &addresses);
    nodes.settle();
    // Exactly the remaining units.
    for number in 0..admitted.len() {
        while take(&nodes.stores[number % 3], &rule, number, 1).await.0 {
            admitted[number].fetch_add(1, Ordering::Relaxed);
        }
    }
    is_done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let counted: Vec<_> = admitted.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    let carried: u64 = nodes.stores.iter().map(|it| it.counters().carried).sum();
    assert!(counted.iter().all(|it| *it <= LIMIT), "{counted:?}");
    // A request whose decision was void has been charged twice.
    assert!(counted.iter().all(|it| *it >= LIMIT * 95 / 100), "{counted:?}");
    assert!(carried > 0);
    settle(&nodes.stores.iter().collect::<Vec<_>>());
}
