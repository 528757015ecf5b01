//! A primary, two replicas, and three sentinels that monitor them.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::Redis;
use crate::redis::wait_until;

/// The name of the primary in the sentinels.
const NAME: &str = "tollgate-test";

/// A primary, two replicas, and three sentinels with a quorum of two. All killed when dropped.
pub struct SentinelTrio {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
    /// The port of the primary after the last failover, or at the start.
    last: AtomicU16,
}

impl SentinelTrio {
    /// Starts all six and waits until the replicas are in sync and all sentinels know all servers
    /// and each other.
    pub fn start() -> Self {
        // By default a primary waits five seconds for more replicas.
        let arguments = ["--repl-diskless-sync-delay", "0"];
        let servers: Vec<Redis> = (0..3).map(|_| Redis::start_with(&arguments)).collect();
        let port = servers[0].port();
        for replica in &servers[1..] {
            replica.cli(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
            // A sentinel rewrites it at each failover; a restart reads it.
            replica.cli(&["CONFIG", "REWRITE"]);
        }
        wait_until("linked replicas", || {
            servers[1..].iter().all(|it| it.cli(&["INFO", "replication"]).contains("master_link_status:up"))
        });
        let configuration = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 2\nsentinel down-after-milliseconds {NAME} 1000\n\
             sentinel failover-timeout {NAME} 2000\n"
        );
        let sentinels: Vec<Redis> = (0..3).map(|_| Redis::start_sentinel(&configuration)).collect();
        wait_until("sentinels that know each other", || {
            sentinels.iter().all(|sentinel| {
                let facts = sentinel.cli(&["SENTINEL", "MASTER", NAME]);
                let has = |name: &str, value: &str| facts.contains(&format!("{name}\n{value}\n"));
                has("num-slaves", "2") && has("num-other-sentinels", "2") && has("flags", "master")
            })
        });
        Self { servers, sentinels, last: AtomicU16::new(port) }
    }

    /// Returns a URL with all sentinels and the name of the primary:
    /// `redis-sentinel://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3/tollgate-test`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.sentinels.iter().map(Redis::address).collect();
        format!("redis-sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Returns a sentinel, 0 to 2.
    pub fn sentinel(&self, index: usize) -> &Redis {
        &self.sentinels[index]
    }

    /// Returns a server, 0 to 2; the first started as the primary.
    pub fn redis(&self, index: usize) -> &Redis {
        &self.servers[index]
    }

    /// Returns the primary, according to the first running sentinel.
    pub fn primary(&self) -> &Redis {
        let sentinel = self.sentinels.iter().find(|it| it.is_running()).expect("a sentinel runs");
        let port = primary_port(sentinel).expect("a sentinel always names one");
        self.servers.iter().find(|it| it.port() == port).expect("it names one of ours")
    }

    /// Kills the primary as `kill -9` does, and returns immediately; see
    /// [`SentinelTrio::wait_for_failover`].
    pub fn kill_primary(&self) -> &Redis {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits until all running sentinels name the same new primary, and it accepts writes.
    pub fn wait_for_failover(&self) -> &Redis {
        let last = self.last.load(Ordering::Relaxed);
        let mut found = None;
        wait_until("failover", || {
            let mut names = self.sentinels.iter().filter(|it| it.is_running()).map(primary_port);
            let first = names.next().flatten();
            let new = first.filter(|port| *port != last && names.all(|it| it == first));
            let new = new.and_then(|port| self.servers.iter().find(|it| it.port() == port));
            let new = new.filter(|it| it.try_cli(&["ROLE"]).is_ok_and(|role| role.starts_with("master")));
            found = new;
            found.is_some()
        });
        let new: &Redis = found.expect("`wait_until` found it");
        self.last.store(new.port(), Ordering::Relaxed);
        new
    }
}

/// Returns the port of the primary, according to a sentinel.
fn primary_port(sentinel: &Redis) -> Option<u16> {
    sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).lines().nth(1)?.parse().ok()
}
