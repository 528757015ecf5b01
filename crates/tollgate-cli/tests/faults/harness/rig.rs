//! Servers under load, and the sequence of one fault.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::{Tollgate, wait_until};

use super::load::{Caller, Live, Sample, Surface};
use super::report::Report;
use crate::client::{get, get_json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// The daily limit of a tight key, so that nothing is refilled within a test.
pub(crate) const LIMIT: u64 = 50;
/// The number of tight keys.
pub(crate) const KEYS: usize = 40;
/// The callers of the API and of the gateway, for all nodes together.
const CALLERS: (usize, usize) = (6, 2);
/// The time without a fault at the start.
const WARM_UP: Duration = Duration::from_secs(1);
/// The time without degraded decisions after which the system counts as recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(1);
/// The time limit for recovery.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// How tight keys are decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    /// By the store, for each request.
    Exactly,
    /// From leased units: one hot key with the limits of all tight keys together.
    Leased,
}

/// The field of `store` for leases.
const LEASE: &str = ", lease: 500ms";
/// The rows of leased keys follow all others.
const LEASED_PLACES: u32 = 200;

/// Defines two tests of each fault: one for each way to decide.
macro_rules! both {
    ($($fault:ident),+ $(,)?) => {
        mod exactly {
            $(#[test] fn $fault() { super::$fault($crate::harness::Decided::Exactly); })+
        }

        mod leased {
            $(#[test] fn $fault() { super::$fault($crate::harness::Decided::Leased); })+
        }
    };
}

pub(crate) use both;

/// A fault.
pub(crate) struct Fault<'f> {
    /// The position of its row among those of the same kind of keys.
    pub(crate) place: u32,
    /// The description of the fault.
    pub(crate) name: &'f str,
    /// The kind of store.
    pub(crate) topology: &'f str,
    /// The URL of the store, as the value of `url`.
    pub(crate) url: String,
    /// How tight keys are decided.
    pub(crate) decided: Decided,
    /// The number of servers that share it.
    pub(crate) nodes: usize,
    /// The reason why more than limit and share may be admitted, if any.
    pub(crate) why: &'f str,
}

impl Fault<'_> {
    /// Returns the position of its row in the table.
    pub(super) fn row_place(&self) -> u32 {
        match self.decided {
            Decided::Exactly => self.place,
            Decided::Leased => self.place + LEASED_PLACES,
        }
    }

    /// Returns the kind of store and of keys.
    pub(super) fn row_topology(&self) -> String {
        match self.decided {
            Decided::Exactly => self.topology.to_owned(),
            Decided::Leased => format!("{}, leased hot key", self.topology),
        }
    }

    /// Returns the number of tight keys.
    pub(crate) fn keys(&self) -> usize {
        match self.decided {
            Decided::Exactly => KEYS,
            Decided::Leased => 1,
        }
    }

    /// Returns the daily limit of a tight key.
    pub(crate) fn limit(&self) -> u64 {
        LIMIT * KEYS as u64 / self.keys() as u64
    }

    /// Returns the ports of a list of peers; none for other stores.
    fn peer_ports(&self) -> Vec<&str> {
        let list = self.url.split_once("tollgate://").map_or("", |(_, rest)| rest);
        let list = list.split('\'').next().unwrap_or("");
        list.split(',').filter_map(|address| address.rsplit_once(':')).map(|(_, port)| port).collect()
    }

    /// Returns the configuration of all nodes.
    pub(crate) fn policy(&self) -> String {
        let lease = if self.decided == Decided::Leased { LEASE } else { "" };
        format!(
            "store: {{url: {}{lease}}}\ngateway: {{upstream: demo, workers: 1}}\nlog: {{level: info}}\nlimits:\n  \
             - {{name: tight, endpoint: /tight, by: api_key, bucket: {}/day}}\n  \
             - {{name: wide, endpoint: /wide, by: api_key, bucket: 10000000/day, lease: off}}\n",
            self.url,
            self.limit()
        )
    }

    /// Starts a node. A peer listens on its port of the list.
    pub(crate) fn start_node(&self, number: usize) -> Tollgate {
        let listen = self.peer_ports().get(number).map(|port| format!("listen.resp=127.0.0.1:{port}"));
        let arguments: Vec<&str> = listen.iter().flat_map(|it| ["--set", it]).collect();
        Tollgate::start_with(BINARY, &self.policy(), &arguments)
    }
}

/// The state after a fault.
pub(crate) struct ServedNode {
    /// The time since which Redis serves again.
    pub(crate) at: Instant,
    /// The units that the fault may have given back: spent and forgotten.
    pub(crate) lost: u64,
    /// The units that nodes without load have admitted.
    pub(crate) elsewhere: u64,
}

impl ServedNode {
    /// Creates the state without a loss.
    pub(crate) fn since(at: Instant) -> Self {
        Self { at, lost: 0, elsewhere: 0 }
    }

    /// Creates the state after a loss.
    pub(crate) fn with_loss(at: Instant, lost: u64) -> Self {
        Self { at, lost, elsewhere: 0 }
    }
}

/// Servers under load.
pub(crate) struct Rig {
    pub(crate) nodes: Vec<Tollgate>,
    pub(crate) live: Arc<Live>,
}

/// Returns the name of a tight key.
pub(crate) fn tight_key(number: usize) -> String {
    format!("tight-{number:02}")
}

impl Rig {
    fn start(fault: &Fault<'_>) -> Self {
        let nodes: Vec<_> = (0..fault.nodes).map(|number| fault.start_node(number)).collect();
        // Peers know each other from their list.
        if nodes.len() > 1 && fault.peer_ports().is_empty() {
            // Each node divides by the last known number of nodes.
            wait_until("nodes that know each other", || {
                let known = format!("\ntollgate_nodes {}\n", nodes.len());
                nodes.iter().all(|node| page(node.api, "/metrics").contains(&known))
            });
        }
        Self { nodes, live: Live::new(fault.keys()) }
    }

    /// Returns an upper bound of the units that tight keys have spent, including requests in flight.
    pub(crate) fn spent(&self) -> u64 {
        self.live.admitted() + Self::under_way()
    }

    fn under_way() -> u64 {
        u64::try_from(CALLERS.0 + CALLERS.1).unwrap_or(0)
    }

    /// Returns an upper bound of the units that tight keys have spent, or that nodes have leased and may spend.
    pub(crate) fn charged(&self) -> u64 {
        // First: units that are spent in between are counted twice, not missed.
        let held = self.held();
        held + self.spent()
    }

    /// Returns an upper bound of the units charged since `spent` returned `before`.
    pub(crate) fn charged_since(&self, before: u64) -> u64 {
        Self::under_way() + self.charged() - before
    }

    /// Returns the leased units that the nodes hold.
    fn held(&self) -> u64 {
        let of = |node: &Tollgate| {
            let page = page(node.api, "/metrics");
            let value = page.lines().find_map(|line| line.strip_prefix("tollgate_lease_units_held "));
            value.map_or(0, |it| it.parse::<u64>().unwrap())
        };
        self.nodes.iter().map(of).sum()
    }

    /// Keeps the load running for some time.
    #[allow(clippy::unused_self, reason = "the load is what goes on")]
    pub(crate) fn endure(&self, time: Duration) {
        thread::sleep(time);
    }

    /// Returns the degraded decisions that the running nodes have counted, on all surfaces.
    fn degraded(&self) -> u64 {
        let count = |line: &str| line.rsplit(' ').next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        let is_count = |line: &&str| line.starts_with("tollgate_degraded_decisions_total");
        let of =
            |node: &Tollgate| page(node.api, "/metrics").lines().filter(is_count).map(count).sum::<u64>();
        self.nodes.iter().map(of).sum()
    }

    fn load(&self) -> Vec<thread::JoinHandle<Vec<Sample>>> {
        let count = self.nodes.len();
        let api = (0..CALLERS.0).map(|it| Surface::Api(self.nodes[it % count].api)).enumerate();
        let gateway = (0..CALLERS.1).map(|it| Surface::Gateway(self.nodes[it % count].gateway)).enumerate();
        let callers = api.chain(gateway).map(|(number, surface)| Caller::new(surface, number % count));
        callers.zip(1..).map(|(caller, seed)| caller.keep_asking(seed * 0x9e37_79b9, &self.live)).collect()
    }

    /// Waits until no decision has been degraded for some time.
    fn settle(&self, since: Instant) {
        while self.live.last_degraded().max(since).elapsed() < RECOVERED_AFTER
            && since.elapsed() < RECOVERY_TIMEOUT
        {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Spends the remaining units of the tight keys.
    fn drain(&self, fault: &Fault<'_>) -> Vec<Sample> {
        let owed =
            || self.nodes.iter().any(|node| get_json(node.api, "/readyz")["store"]["ledger_keys"] != 0);
        let start = Instant::now();
        while owed() && start.elapsed() < RECOVERY_TIMEOUT {
            thread::sleep(Duration::from_millis(20));
        }
        let mut caller = Caller::new(Surface::Api(self.nodes[0].api), 0);
        let mut samples = Vec::new();
        for key in 0..fault.keys() {
            for _ in 0..3 * fault.limit() {
                let sample = caller.ask(Some(key), 0);
                samples.push(sample);
                if !sample.allowed {
                    break;
                }
            }
        }
        samples
    }
}

/// Returns a page as text.
pub(crate) fn page(api: SocketAddr, path: &str) -> String {
    String::from_utf8_lossy(&get(api, path).body).into_owned()
}

/// Causes a fault under load, waits for recovery, spends the rest, writes the row, and checks the
/// assertions of all faults.
pub(crate) fn run(fault: &Fault<'_>, break_it: impl FnOnce(&Rig) -> ServedNode) -> Report {
    let rig = Rig::start(fault);
    let callers = rig.load();
    let start = Instant::now();
    rig.endure(WARM_UP);
    let broken = Instant::now();
    let served = break_it(&rig);
    rig.settle(served.at.max(broken));
    rig.live.stop();
    let samples: Vec<Sample> = callers.into_iter().flat_map(|it| it.join().unwrap()).collect();
    let rest = rig.drain(fault);
    let logs: Vec<_> = rig.nodes.iter().map(Tollgate::log).collect();
    let is_degraded = rig.degraded() > 0;
    let report = Report::new(fault, (start, broken), &served, (samples, is_degraded), rest, logs);
    report.write(fault);
    report.hold();
    report
}
