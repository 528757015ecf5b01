//! Nodes with different numbers for one limit, on one Redis.

use std::net::SocketAddr;
use std::thread;

use tollgate_testkit::{Redis, RedisCluster, Tollgate, wait_until};

use super::{admitted, check, policy, start, stop};

/// Returns the limit that a node reports.
fn limit(api: SocketAddr) -> u64 {
    let answer =
        crate::service::client::post_json(api, "/v1/check", r#"{"path":"/","ip":"203.0.113.9","cost":0}"#);
    answer["limits"][0]["limit"].as_u64().unwrap_or_else(|| panic!("no limit in {answer}"))
}

/// Sends checks to all nodes at the same time; returns the number of admitted ones.
fn flood(nodes: &[&Tollgate], checks: usize) -> usize {
    let callers: Vec<_> = nodes
        .iter()
        .flat_map(|node| [node.api, node.api])
        .map(|api| thread::spawn(move || admitted(api, checks)))
        .collect();
    callers.into_iter().map(|caller| caller.join().unwrap()).sum()
}

#[test]
fn a_restart_with_changed_numbers_keeps_usage() {
    let redis = Redis::start();
    restart_with_changed_numbers(&format!("url: '{}'", redis.url()));
}

/// Restarts with a raised and a lowered limit.
#[track_caller]
pub(crate) fn restart_with_changed_numbers(store: &str) {
    let first = start(5, store);
    assert_eq!(admitted(first.api, 3), 3);
    stop(first);
    let raised = start(10, store);
    assert_eq!((limit(raised.api), admitted(raised.api, 12)), (10, 7), "{}", raised.log());
    stop(raised);
    let lowered = start(8, store);
    assert_eq!((limit(lowered.api), admitted(lowered.api, 3)), (8, 0), "{}", lowered.log());
    stop(lowered);
    let raised = start(12, store);
    assert_eq!(admitted(raised.api, 5), 2, "{}", raised.log());
}

#[test]
fn a_node_that_was_killed_is_not_waited_for_forever() {
    let redis = Redis::start();
    let store = format!("url: '{}'", redis.url());
    let first = start(5, &store);
    assert_eq!(admitted(first.api, 3), 3);
    first.program.signal("KILL");
    drop(first);
    // The dead node may still serve, as far as the new one knows.
    let second = start(10, &store);
    assert_eq!(admitted(second.api, 4), 2, "{}", second.log());
    wait_until("the new limit is in force", || limit(second.api) == 10);
    assert_eq!(admitted(second.api, 12), 5, "{}", second.log());
}

/// A deploy from one limit to another, node by node, under load.
#[track_caller]
pub(crate) fn deploy(from: u32, to: u32, store: &str) {
    let larger = from.max(to) as usize;
    let old = [start(from, store), start(from, store)];
    let mut total = flood(&[&old[0], &old[1]], 5);
    let new = start(to, store);
    total += flood(&[&old[0], &old[1], &new], 5);
    assert!(total <= larger, "{total} of {larger}\n{}", new.log());
    let [first, second] = old;
    stop(first);
    total += flood(&[&second, &new], 10);
    assert!(total <= larger, "{total} of {larger}\n{}", new.log());
    wait_until("the new limit is in force", || u64::from(to) == limit(new.api));
    total += flood(&[&second, &new], larger);
    assert_eq!(total, larger, "{}\n{}", second.log(), new.log());
    stop(second);
    assert_eq!(check(new.api)["allowed"], false);
    stop(new);
}

#[test]
fn a_rolling_deploy_that_raises_a_limit_admits_no_more_than_the_larger_one() {
    let redis = Redis::start();
    deploy(100, 130, &format!("url: '{}'", redis.url()));
}

#[test]
fn a_rolling_deploy_that_lowers_a_limit_admits_no_more_than_the_larger_one() {
    let redis = Redis::start();
    deploy(130, 100, &format!("url: '{}'", redis.url()));
}

#[test]
fn a_rolling_deploy_on_a_cluster_admits_no_more_than_the_larger_limit() {
    let cluster = RedisCluster::start();
    deploy(100, 130, &format!("url: ['{}']", cluster.urls().join("', '")));
}

#[test]
fn a_reload_on_one_node_of_a_fleet_admits_no_more_than_the_larger_limit() {
    let redis = Redis::start();
    let store = format!("url: '{}'", redis.url());
    let (one, other) = (start(100, &store), start(100, &store));
    let mut total = flood(&[&one, &other], 10);
    one.files.write("tollgate.yaml", &policy(130, &store));
    one.program.signal("HUP");
    wait_until("the new limit is in force", || limit(one.api) == 130);
    total += flood(&[&one, &other], 100);
    assert_eq!(total, 130, "{}\n{}", one.log(), other.log());
    assert_eq!(limit(other.api), 100);
}
