//! A primary, two replicas, and three sentinels that watch them.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::Redis;
use crate::redis::wait_until;

/// What the sentinels call the primary.
const NAME: &str = "tollgate-test";

/// A primary, two replicas, three sentinels of which two decide. All killed when dropped.
pub struct SentinelTrio {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
    /// The port of the primary that the last failover, or the start, made.
    last: AtomicU16,
}

impl SentinelTrio {
    /// Starts all six and waits until the replicas follow and all sentinels know all servers and each other.
    pub fn start() -> Self {
        // By itself a primary waits five seconds for more replicas to ask.
        let arguments = ["--repl-diskless-sync-delay", "0"];
        let servers: Vec<Redis> = (0..3).map(|_| Redis::start_with(&arguments)).collect();
        let port = servers[0].port();
        for replica in &servers[1..] {
            replica.cli(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
            // A sentinel writes it down at each failover; a restart reads it.
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

    /// All sentinels and the name of the primary: `redis-sentinel://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3/tollgate-test`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.sentinels.iter().map(Redis::address).collect();
        format!("redis-sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Where the sentinels listen.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Redis::port).collect()
    }

    /// A sentinel, 0 to 2.
    pub fn sentinel(&self, index: usize) -> &Redis {
        &self.sentinels[index]
    }

    /// A server, 0 to 2; the first began as the primary.
    pub fn redis(&self, index: usize) -> &Redis {
        &self.servers[index]
    }

    /// The primary, as the first sentinel that runs says.
    pub fn primary(&self) -> &Redis {
        let sentinel = self.sentinels.iter().find(|it| it.is_running()).expect("a sentinel runs");
        let port = says(sentinel).expect("a sentinel always names one");
        self.servers.iter().find(|it| it.port() == port).expect("it names one of ours")
    }

    /// Kills the primary as `kill -9` does, and returns at once; see [`SentinelTrio::wait_for_failover`].
    pub fn kill_primary(&self) -> &Redis {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits until all sentinels that run name one primary, other than the last, and it takes writes.
    pub fn wait_for_failover(&self) -> &Redis {
        let last = self.last.load(Ordering::Relaxed);
        let mut found = None;
        wait_until("failover", || {
            let mut names = self.sentinels.iter().filter(|it| it.is_running()).map(says);
            let first = names.next().flatten();
            let new = first.filter(|port| *port != last && names.all(|it| it == first));
            let new = new.and_then(|port| self.servers.iter().find(|it| it.port() == port));
            let new = new.filter(|it| it.try_cli(&["ROLE"]).is_ok_and(|role| role.starts_with("master")));
            found = new;
            found.is_some()
        });
        let new: &Redis = found.expect("it was waited for");
        self.last.store(new.port(), Ordering::Relaxed);
        new
    }
}

/// The port of the primary, as a sentinel says.
fn says(sentinel: &Redis) -> Option<u16> {
    sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).lines().nth(1)?.parse().ok()
}
