//! The servers of the test kit: they start, answer, fail and recover.

#![allow(clippy::disallowed_methods, reason = "tests wait for other processes")]

use std::net::TcpStream;

use tollgate_testkit::{Lan, Redis, RedisCluster, SentinelTrio};

fn seconds(redis: &Redis) -> i64 {
    let time = redis.cli(&["TIME"]);
    time.lines().next().and_then(|it| it.parse().ok()).expect("the time is a number")
}

#[test]
fn a_server_answers_dies_and_restarts_empty() {
    let redis = Redis::start();
    assert_eq!(redis.url(), format!("redis://{}", redis.address()));
    assert_eq!(redis.cli(&["SET", "key", "value"]), "OK");
    assert_eq!(redis.cli(&["GET", "key"]), "value");
    assert!(redis.try_cli(&["NONSENSE"]).unwrap_err().contains("unknown command"));
    redis.kill();
    assert!(TcpStream::connect(redis.address()).is_err());
    redis.restart();
    assert_eq!(redis.cli(&["EXISTS", "key"]), "0");
}

#[test]
fn a_server_takes_arguments() {
    let redis = Redis::start_with(&["--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lru"]);
    assert_eq!(redis.cli(&["CONFIG", "GET", "maxmemory"]), "maxmemory\n2097152");
}

#[test]
fn a_paused_server_resumes_and_can_be_dropped() {
    let redis = Redis::start();
    redis.cli(&["SET", "key", "value"]);
    redis.pause();
    assert!(!redis.is_running());
    // The kernel still accepts connections for it.
    assert!(TcpStream::connect(redis.address()).is_ok());
    redis.resume();
    assert_eq!(redis.cli(&["GET", "key"]), "value");
    redis.pause();
}

#[test]
fn a_password_is_required() {
    for (user, login) in [(None, ":secret"), (Some("alice"), "alice:secret")] {
        let redis = Redis::start_with_password(user, "secret");
        assert_eq!(redis.url(), format!("redis://{login}@{}", redis.address()));
        assert_eq!(redis.cli(&["PING"]), "PONG");
        let port = redis.port().to_string();
        let stranger = std::process::Command::new("redis-cli").args(["-p", &port, "PING"]).output().unwrap();
        assert!(String::from_utf8_lossy(&stranger.stdout).contains("NOAUTH"));
    }
}

#[test]
fn a_server_speaks_tls_only() {
    let redis = Redis::start_with_tls();
    assert!(redis.url().starts_with("rediss://127.0.0.1:"));
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert!(redis.ca().exists());
    redis.restart();
    assert_eq!(redis.cli(&["PING"]), "PONG");
}

#[test]
fn a_wall_clock_steps_forward_and_back() {
    let redis = Redis::start_with_clock();
    let start = seconds(&redis);
    redis.step_clock(3600);
    let later = seconds(&redis) - start;
    assert!((3600..3660).contains(&later), "{later}");
    redis.step_clock(-7200);
    let earlier = seconds(&redis) - start;
    assert!((-3600..-3540).contains(&earlier), "{earlier}");
    assert_eq!(redis.cli(&["SET", "key", "value", "EX", "100"]), "OK");
    redis.step_clock(200);
    assert_eq!(redis.cli(&["EXISTS", "key"]), "0");
}

#[test]
fn a_network_is_cut_silently_and_restored() {
    let lan = Lan::new();
    let redis = Redis::start_in(&lan);
    let address = redis.address().parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, std::time::Duration::from_millis(300));
    assert!(connect().is_ok());
    lan.cut();
    assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    // The test still reaches the server.
    assert_eq!(redis.cli(&["PING"]), "PONG");
    lan.drop_packets(100);
    assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    lan.drop_packets(10);
    assert!(TcpStream::connect_timeout(&address, std::time::Duration::from_secs(60)).is_ok());
    lan.drop_packets(0);
    assert!(connect().is_ok());
    lan.cut();
    lan.mend();
    assert!(connect().is_ok());
    redis.pause();
    redis.resume();
    redis.restart();
    assert!(connect().is_ok());
}

#[test]
fn networks_are_independent() {
    let (one, two) = (Lan::new(), Lan::new());
    assert_ne!(one.address(), two.address());
}

#[test]
fn sentinels_fail_over() {
    let trio = SentinelTrio::start();
    assert!(trio.url().ends_with("/tollgate-test"), "{}", trio.url());
    assert_eq!(trio.primary().port(), trio.redis(0).port());
    assert!(trio.redis(1).try_cli(&["SET", "key", "value"]).unwrap_err().contains("READONLY"));
    trio.redis(0).cli(&["SET", "key", "value"]);
    assert_eq!(trio.redis(0).cli(&["WAIT", "2", "0"]), "2");
    let old = trio.kill_primary();
    let new = trio.wait_for_failover();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.cli(&["GET", "key"]), "value");
    assert_eq!(new.cli(&["SET", "key", "other"]), "OK");
}

#[test]
fn a_cluster_moves_slots_fails_over_and_goes_down() {
    let cluster = RedisCluster::start();
    assert_eq!(cluster.urls().len(), 6);
    let slot = cluster.slot_of("{tag}");
    let from = cluster.primary_of_slot(slot);
    let to = (from + 1) % 3;
    // Quoted, so that the key contains bytes that are not text.
    cluster.node(from).cli(&["--quoted-input", "SET", "\"{tag}\\x00\\xff\\n two\"", "value"]);
    cluster.node(from).cli(&["SET", "{tag}", "value"]);
    cluster.open_slot(slot, to);
    assert!(cluster.node(from).try_cli(&["GET", "{tag}new"]).unwrap_err().contains("ASK"));
    cluster.close_slot(slot, to);
    assert_eq!(cluster.node(to).cli(&["GET", "{tag}"]), "value");
    assert_eq!(cluster.node(to).cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]), "2");
    assert!(cluster.node(from).try_cli(&["GET", "{tag}"]).unwrap_err().contains("MOVED"));
    cluster.move_slot(slot, from);
    assert_eq!(cluster.primary_of_slot(slot), from);

    let replica = cluster.replica_of(to).unwrap();
    let lost = cluster.slot_of("key");
    let owner = cluster.primary_of_slot(lost);
    cluster.kill(to);
    cluster.wait_until_ok();
    assert!(cluster.replica_of(replica).is_none());
    assert_eq!(cluster.primary_of_slot(lost), if owner == to { replica } else { owner });

    let owner = cluster.primary_of_slot(lost);
    cluster.uncover(lost);
    assert!(cluster.node(owner).try_cli(&["GET", "key"]).unwrap_err().contains("CLUSTERDOWN"));
    cluster.cover(lost, owner);
    assert_eq!(cluster.node(owner).cli(&["SET", "key", "value"]), "OK");
    cluster.node(to).restart();
    cluster.wait_until_ok();
    // At the end: Redis 7.0 may lose the last slot of a reshard when the node that received it
    // fails over soon after and then returns.
    cluster.reshard(from, replica, 20);
}
