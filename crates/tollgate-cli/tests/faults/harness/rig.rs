//! Servers under load, and the walk through one fault.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::{Tollgate, wait_until};

use super::load::{Caller, Live, Sample, Surface};
use super::report::Report;
use crate::client::{get, told};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// What one tight key may spend in a day, so that nothing comes back within a test.
pub(crate) const LIMIT: u64 = 50;
/// How many tight keys there are.
pub(crate) const KEYS: usize = 40;
/// Callers of the API and of the gateway, for all nodes together.
const CALLERS: (usize, usize) = (6, 2);
/// How long all is well at first.
const WARM_UP: Duration = Duration::from_secs(1);
/// Nothing degraded for so long: recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(1);
/// Whoever has not recovered by then never will.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// One thing that breaks.
pub(crate) struct Fault<'f> {
    /// Where its row stands in the table.
    pub(crate) place: u32,
    /// What breaks, for people.
    pub(crate) name: &'f str,
    /// What the store is.
    pub(crate) topology: &'f str,
    /// The fields of `store`.
    pub(crate) store: String,
    /// How many servers share it.
    pub(crate) nodes: usize,
    /// Why more than limit and share may be admitted, if so.
    pub(crate) why: &'f str,
}

/// What a fault left behind.
pub(crate) struct ServedNode {
    /// Since when Redis serves again.
    pub(crate) at: Instant,
    /// What the fault may have given back: units that were spent and are forgotten.
    pub(crate) lost: u64,
}

impl ServedNode {
    /// With all that was spent.
    pub(crate) fn since(at: Instant) -> Self {
        Self { at, lost: 0 }
    }
}

/// Servers under load.
pub(crate) struct Rig {
    pub(crate) nodes: Vec<Tollgate>,
    pub(crate) live: Arc<Live>,
}

/// What a tight key is called.
pub(crate) fn tight_key(number: usize) -> String {
    format!("tight-{number:02}")
}

impl Rig {
    fn start(fault: &Fault<'_>) -> Self {
        let policy = format!(
            "store: {{{}}}\ngateway: {{upstream: demo, workers: 1}}\nlog: {{level: info}}\nlimits:\n  \
             - {{name: tight, endpoint: /tight, by: api_key, bucket: {LIMIT}/day}}\n  \
             - {{name: wide, endpoint: /wide, by: api_key, bucket: 10000000/day}}\n",
            fault.store
        );
        let nodes: Vec<_> = (0..fault.nodes).map(|_| Tollgate::start(BINARY, &policy)).collect();
        if nodes.len() > 1 {
            // Each divides by the number that it last heard.
            wait_until("nodes that know each other", || {
                let known = format!("\ntollgate_nodes {}\n", nodes.len());
                nodes.iter().all(|node| page(node.api, "/metrics").contains(&known))
            });
        }
        Self { nodes, live: Live::new() }
    }

    /// What tight keys were granted so far: all that can have been spent, and a little
    /// more, for what is under way.
    pub(crate) fn spent(&self) -> u64 {
        self.live.admitted() + Self::under_way()
    }

    fn under_way() -> u64 {
        u64::try_from(CALLERS.0 + CALLERS.1).unwrap_or(0)
    }

    /// What they were granted since `spent` said so much, likewise.
    pub(crate) fn spent_since(&self, before: u64) -> u64 {
        Self::under_way() + self.spent() - before
    }

    /// Goes on for a while.
    #[allow(clippy::unused_self, reason = "the load is what goes on")]
    pub(crate) fn endure(&self, time: Duration) {
        thread::sleep(time);
    }

    fn load(&self) -> Vec<thread::JoinHandle<Vec<Sample>>> {
        let count = self.nodes.len();
        let api = (0..CALLERS.0).map(|it| Surface::Api(self.nodes[it % count].api)).enumerate();
        let gateway = (0..CALLERS.1).map(|it| Surface::Gateway(self.nodes[it % count].gateway)).enumerate();
        let callers = api.chain(gateway).map(|(number, surface)| Caller::new(surface, number % count));
        callers.zip(1..).map(|(caller, seed)| caller.keep_asking(seed * 0x9e37_79b9, &self.live)).collect()
    }

    /// Waits until nothing has been degraded for a while.
    fn settle(&self, since: Instant) {
        while self.live.last_degraded().max(since).elapsed() < RECOVERED_AFTER
            && since.elapsed() < RECOVERY_TIMEOUT
        {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Spends what tight keys still have.
    fn drain(&self) -> Vec<Sample> {
        let owed = || self.nodes.iter().any(|node| told(node.api, "/readyz")["store"]["ledger_keys"] != 0);
        let start = Instant::now();
        while owed() && start.elapsed() < RECOVERY_TIMEOUT {
            thread::sleep(Duration::from_millis(20));
        }
        let mut caller = Caller::new(Surface::Api(self.nodes[0].api), 0);
        let mut samples = Vec::new();
        for key in 0..KEYS {
            for _ in 0..3 * LIMIT {
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

/// One page as text.
pub(crate) fn page(api: SocketAddr, path: &str) -> String {
    String::from_utf8_lossy(&get(api, path).body).into_owned()
}

/// Breaks one thing under load, waits until all is well again, spends the rest, writes
/// the row, and holds what holds for all faults.
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
    let rest = rig.drain();
    let logs: Vec<_> = rig.nodes.iter().map(Tollgate::log).collect();
    let report = Report::new(fault, (start, broken), &served, samples, rest, logs);
    report.write(fault);
    report.hold();
    report
}
