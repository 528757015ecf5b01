//! The report: rows, bars, and the conditions of the measurement.

use std::fmt;

use serde::Serialize;

use super::cluster::{ClusterRow, Throughput};
use super::daemon::{PeerRow, RegionRow, SurfaceRow};
use super::hot::HotKey;
use super::node::Tally;
use crate::redis::exactness::Spent;
use crate::report::{Bar, Machine};

/// Nodes that send requests about one key at a constant rate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: &'static str,
    /// The number of nodes.
    pub nodes: usize,
    /// The answers.
    pub tally: Tally,
    /// Calls to Redis by all nodes.
    pub calls: u64,
    /// Admitted requests of an ideal central bucket in the same time, at most; `None` if the limit is ample.
    pub ideal: Option<f64>,
    /// The same in the last part of the run.
    pub settled_ideal: Option<f64>,
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

impl Row {
    /// Decisions for each call to Redis.
    pub fn decisions_per_call(&self) -> f64 {
        float(self.tally.requests()) / float(self.calls.max(1))
    }

    /// The share of requests that waited for Redis.
    pub fn waited(&self) -> f64 {
        float(self.tally.waited) / float(self.tally.requests().max(1))
    }

    /// The share of requests that waited for Redis after the first second: before that, the key is not hot.
    pub fn settled_waited(&self) -> f64 {
        float(self.tally.settled_waited) / float(self.tally.settled_requests.max(1))
    }

    /// Admitted requests relative to those of an ideal central bucket.
    pub fn of_ideal(&self) -> Option<f64> {
        Some(float(self.tally.admitted) / self.ideal?)
    }

    /// Admitted requests relative to those of an ideal central bucket, in the last part of the run.
    pub fn settled_of_ideal(&self) -> Option<f64> {
        Some(float(self.tally.settled) / self.settled_ideal?)
    }

    /// Admitted requests beyond those of an ideal central bucket.
    pub fn overshoot(&self) -> Option<f64> {
        Some((float(self.tally.admitted) - self.ideal?).max(0.0))
    }
}

/// The measurements. Parts that were not run are `None` or empty.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The cost of a decision about a hot key.
    pub hot: Option<HotKey>,
    /// Nodes that share a key.
    pub rows: Vec<Row>,
    /// A hot key through `tollgate serve`.
    pub surfaces: Vec<SurfaceRow>,
    /// Two regions.
    pub regions: Option<RegionRow>,
    /// Two peers.
    pub peers: Option<PeerRow>,
    /// Three limits on a cluster.
    pub cluster: Option<ClusterRow>,
    /// Eight processes with one allowance and leases: each round.
    pub contention: Vec<Spent>,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct FleetReport {
    /// The machine.
    pub machine: Machine,
    /// Version of Redis.
    pub redis: String,
    /// The measurements.
    #[serde(flatten)]
    pub measured: Measured,
    /// Targets and results.
    pub bars: Vec<Bar>,
    /// Conditions of the run.
    pub remarks: Vec<String>,
}

impl FleetReport {
    /// Creates the report from its measurements.
    pub fn new(machine: Machine, redis: String, measured: Measured, remarks: Vec<String>) -> Self {
        Self { bars: bars(&measured), machine, redis, measured, remarks }
    }
}

fn bars(measured: &Measured) -> Vec<Bar> {
    let Measured { hot, rows, surfaces, regions, peers, cluster, contention } = measured;
    let surface = |name: &str| {
        let row = surfaces.iter().find(|row| row.surface == name);
        row.map(|row| row.memory.cpu_us / row.leased.cpu_us)
    };
    let row = |case: &str| rows.iter().find(|row| row.case == case);
    let sums = || contention.iter().map(|it| float(it.admitted.iter().sum()));
    vec![
        Bar::at_most(25.0, "hot key, leased, ns per decision of the store", hot.map(|it| it.leased_ns)),
        Bar::at_least(
            0.95,
            "hot key through a limiter: memory / leased",
            hot.map(|it| it.limiter_memory_ns / it.limiter_leased_ns),
        ),
        Bar::at_least(0.95, "hot key over RESP: CPU per request, memory / leased", surface("resp")),
        Bar::at_least(
            0.95,
            "hot key through the gateway: CPU per request, memory / leased",
            surface("gateway"),
        ),
        Bar::at_least(
            3_000.0,
            "lease 250ms: decisions per call to Redis",
            row("lease 250ms").map(Row::decisions_per_call),
        ),
        Bar::at_least(
            10_000.0,
            "lease 1s: decisions per call to Redis",
            row("lease 1s").map(Row::decisions_per_call),
        ),
        Bar::at_most(
            0.001,
            "lease 250ms: share of requests that wait",
            row("lease 250ms").map(Row::settled_waited),
        ),
        Bar::at_least(0.98, "saturated: admitted / ideal", row("saturated").and_then(Row::of_ideal)),
        Bar::at_least(
            0.999,
            "saturated, after a minute: admitted / ideal",
            row("saturated").and_then(Row::settled_of_ideal),
        ),
        Bar::at_most(0.0, "saturated: admitted beyond the limit", row("saturated").and_then(Row::overshoot)),
        Bar::at_most(
            0.0,
            "Redis stopped for half a lease: decisions without it",
            row("redis stopped").map(|it| float(it.tally.failed)),
        ),
        Bar::at_most(
            1.1,
            "cluster, three limits, leased: calls per request",
            cluster.map(|it| it.leased.calls),
        ),
        Bar::at_least(
            2.0,
            "cluster, three limits: leased / exact requests/s",
            cluster.map(|it| it.leased.per_second / it.exact.per_second),
        ),
        Bar::at_least(
            2.0,
            "cluster, three limits, 16 in flight: leased / exact requests/s",
            cluster.map(|it| it.leased_few.per_second / it.exact_few.per_second),
        ),
        Bar::at_most(
            1.1,
            "regions 80 ms apart: p99 / p99 of one near Redis",
            regions.map(|it| it.regions.p99_us / it.near.p99_us),
        ),
        Bar::at_most(
            0.0,
            "regions: refused while the other region has units",
            regions.map(|it| it.regions.refused),
        ),
        Bar::at_least(
            1e6,
            "peers: forwarded checks/s a core, of the forwarder",
            peers.map(|it| it.forwarder_per_core),
        ),
        Bar::at_least(
            1e6,
            "peers: forwarded checks/s a core, of the owner",
            peers.map(|it| it.owner_per_core),
        ),
        Bar::at_most(200.0, "peers: p50 of a forwarded check, us", peers.map(|it| it.p50_us)),
        Bar::at_most(100.0, "8 processes on 100 an hour: the most admitted", sums().reduce(f64::max)),
        Bar::at_least(98.0, "8 processes on 100 an hour: the fewest admitted", sums().reduce(f64::min)),
    ]
}

impl Measured {
    /// Writes the rows of processes and of the cluster.
    fn write_services(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<30}{:>12}{:>10}{:>10}{:>10}{:>10}",
            "process", "requests/s", "CPU us", "p50 us", "p99 us", "refused"
        )?;
        let surfaces = self.surfaces.iter().flat_map(|it| {
            [(format!("{}, memory", it.surface), it.memory), (format!("{}, leased", it.surface), it.leased)]
        });
        let regions = self
            .regions
            .iter()
            .flat_map(|it| [("one near Redis".to_owned(), it.near), ("two regions".to_owned(), it.regions)]);
        for (name, it) in surfaces.chain(regions) {
            writeln!(
                f,
                "{name:<30}{:>12.0}{:>10.3}{:>10.0}{:>10.0}{:>9.3}%",
                it.per_second,
                it.cpu_us,
                it.p50_us,
                it.p99_us,
                it.refused * 100.0
            )?;
        }
        if let Some(PeerRow { p50_us, own_p50_us, per_second, owner_per_core, forwarder_per_core }) =
            self.peers
        {
            writeln!(
                f,
                "peers: forwarded p50 {p50_us:.0} us (own key {own_p50_us:.0}), pipelined {per_second:.0}/s; per core: \
                 forwarder {forwarder_per_core:.0}, owner {owner_per_core:.0}"
            )?;
        }
        let Some(ClusterRow { exact, leased, exact_few, leased_few }) = &self.cluster else { return Ok(()) };
        writeln!(
            f,
            "\n{:<24}{:>14}{:>14}{:>18}{:>18}",
            "cluster, three limits", "requests/s", "calls/request", "Redis us/request", "client us/request"
        )?;
        let few = [("exact, 16 in flight", exact_few), ("leased, 16 in flight", leased_few)];
        for (name, it) in [("exact", exact), ("leased", leased)].into_iter().chain(few) {
            let Throughput { per_second, calls, redis_us, client_us } = it;
            writeln!(f, "{name:<24}{per_second:>14.0}{calls:>14.3}{redis_us:>18.2}{client_us:>18.2}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FleetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, rustc, commit } = &self.machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}, Redis {}\n", self.redis)?;
        if let Some(hot) = &self.measured.hot {
            writeln!(f, "{:<24}{:>14}{:>14}{:>18}", "hot key", "memory ns", "leased ns", "memory / leased")?;
            for (name, memory, leased) in [
                ("store", hot.memory_ns, hot.leased_ns),
                ("limiter", hot.limiter_memory_ns, hot.limiter_leased_ns),
            ] {
                writeln!(f, "{name:<24}{memory:>14.1}{leased:>14.1}{:>18.2}", memory / leased)?;
            }
            writeln!(f, "answered from leases: {:.4} %\n", hot.answered * 100.0)?;
        }
        writeln!(
            f,
            "{:<16}{:>6}{:>11}{:>10}{:>9}{:>8}{:>8}{:>16}{:>11}",
            "one key",
            "nodes",
            "requests",
            "admitted",
            "waited",
            "failed",
            "calls",
            "decisions/call",
            "of ideal"
        )?;
        for row in &self.measured.rows {
            let of_ideal = row.of_ideal().map_or_else(|| "-".to_owned(), |it| format!("{it:.4}"));
            writeln!(
                f,
                "{:<16}{:>6}{:>11}{:>10}{:>8.3}%{:>8}{:>8}{:>16.0}{:>11}",
                row.case,
                row.nodes,
                row.tally.requests(),
                row.tally.admitted,
                row.waited() * 100.0,
                row.tally.failed,
                row.calls,
                row.decisions_per_call(),
                of_ideal
            )?;
        }
        self.measured.write_services(f)?;
        let sums: Vec<String> =
            self.measured.contention.iter().map(|it| it.admitted.iter().sum::<u64>().to_string()).collect();
        writeln!(f, "\n8 processes, 1200 checks at once on 100 an hour: admitted {}\n", sums.join(", "))?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_compared_with_an_ideal_bucket() {
        let tally =
            Tally { admitted: 990, settled: 99, refused: 1_000, waited: 20, failed: 10, ..Tally::default() };
        let row = Row {
            case: "saturated",
            nodes: 2,
            tally,
            calls: 4,
            ideal: Some(1_000.0),
            settled_ideal: Some(100.0),
        };
        assert!((row.decisions_per_call() - 500.0).abs() < 1e-9 && (row.waited() - 0.01).abs() < 1e-9);
        assert!(row.of_ideal().is_some_and(|it| (it - 0.99).abs() < 1e-9) && row.overshoot() == Some(0.0));
        assert!(row.settled_of_ideal().is_some_and(|it| (it - 0.99).abs() < 1e-9));
        let row = Row { ideal: Some(980.0), ..row };
        assert_eq!(row.overshoot(), Some(10.0));
    }
}
