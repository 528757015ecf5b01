//! The measurements: a row of the table, and the assertions about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::ProgramOutput;

use super::load::{Sample, percentile};
use super::rig::{Fault, KEYS, ServedNode};

/// The maximum recovery time in a test, generous for a busy machine.
const MAX_RECOVERY: Duration = Duration::from_secs(10);
/// The share of a limit that all nodes together grant during an outage, in percent.
const SHARE: u64 = 20;

/// The result of a fault.
pub(crate) struct Report {
    /// The admissions of tight keys, and their maximum: the limit, the share of `on_outage`, and the
    /// units that the fault gave back.
    pub(crate) admitted: u64,
    pub(crate) allowed: AllowedRange,
    pub(crate) degraded: usize,
    pub(crate) decisions: usize,
    /// Callers with a 5xx or without a response.
    pub(crate) errors: usize,
    before: Duration,
    during: Duration,
    longest: Duration,
    /// The time until each node had a decision of the store again.
    first: Duration,
    /// The time until the last degraded decision.
    recovered: Duration,
    pub(crate) samples: Vec<Sample>,
    pub(crate) logs: Vec<String>,
}

/// The allowed admissions.
#[derive(Clone, Copy)]
pub(crate) struct AllowedRange {
    limit: u64,
    share: u64,
    lost: u64,
}

impl AllowedRange {
    pub(crate) fn total(self) -> u64 {
        self.limit + self.share + self.lost
    }
}

impl Report {
    pub(super) fn new(
        fault: &Fault<'_>,
        (start, broken): (Instant, Instant),
        served: &ServedNode,
        (mut samples, is_degraded_anywhere): (Vec<Sample>, bool),
        rest: Vec<Sample>,
        logs: Vec<String>,
    ) -> Self {
        let is_degraded = |it: &&Sample| it.degraded == Some(true);
        let last = samples.iter().filter(is_degraded).map(Sample::end).max();
        let recovered = last.map_or(Duration::ZERO, |it| it.saturating_duration_since(served.at));
        let over = served.at + recovered;
        let times = |from: Instant, until: Instant, percent: usize| {
            let of = |it: &&Sample| it.tight.is_none() && it.at < until && it.end() >= from;
            percentile(samples.iter().filter(of).map(|it| it.took).collect(), percent)
        };
        let warm = start + Duration::from_millis(300);
        let (before, during) = (times(warm, broken, 99), times(broken, over, 99));
        let longest = times(broken, over, 100);
        let first = (0..fault.nodes).map(|node| {
            let own = |it: &&Sample| it.node == node && it.at >= served.at && it.degraded == Some(false);
            samples.iter().filter(own).map(Sample::end).min().map_or(Duration::MAX, |it| it - served.at)
        });
        let first = first.max().unwrap_or_default();
        samples.extend(rest);
        let nodes = fault.nodes as u64;
        let keys = fault.keys() as u64;
        let share = keys * nodes * (fault.limit() * SHARE / 100 / nodes).max(1);
        let degraded = samples.iter().filter(is_degraded).count();
        let allowed = AllowedRange {
            limit: keys * fault.limit(),
            // The responses of the gateway do not say it.
            share: if degraded > 0 || is_degraded_anywhere { share } else { 0 },
            lost: served.lost,
        };
        Self {
            admitted: served.elsewhere
                + samples.iter().filter(|it| it.tight.is_some() && it.allowed).count() as u64,
            allowed,
            degraded,
            decisions: samples.len(),
            errors: samples.iter().filter(|it| it.is_error()).count(),
            before,
            during,
            longest,
            first,
            recovered,
            samples,
            logs,
        }
    }

    pub(super) fn write(&self, fault: &Fault<'_>) {
        let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
        write_row(
            fault.row_place(),
            &json!({
                "fault": fault.name,
                "store": fault.row_topology(),
                "nodes": fault.nodes,
                "admitted": self.admitted,
                "allowed": {"limit": self.allowed.limit, "share": self.allowed.share, "lost": self.allowed.lost},
                "why": fault.why,
                "degraded": self.degraded,
                "decisions": self.decisions,
                "p99_before_us": micros(self.before),
                "p99_during_us": micros(self.during),
                "longest_us": micros(self.longest),
                "errors": self.errors,
                "first_us": micros(self.first),
                "recovered_us": micros(self.recovered),
            }),
        );
    }

    /// Checks the assertions of all faults.
    #[track_caller]
    pub(super) fn hold(&self) {
        let log_tails = || {
            let tail = |log: &String| log.lines().rev().take(30).collect::<Vec<_>>().join("\n");
            self.logs.iter().map(tail).collect::<Vec<_>>().join("\n---\n")
        };
        assert_eq!(self.errors, 0, "a request got a 5xx or no response:\n{}", log_tails());
        let strange = self.samples.iter().find(|it| ![200, 429].contains(&it.status));
        assert!(strange.is_none(), "{strange:?}:\n{}", log_tails());
        let (admitted, allowed) = (self.admitted, self.allowed.total());
        assert!(admitted <= allowed, "{admitted} of {allowed}: {}\n{}", self.by_key(), log_tails());
        // Otherwise the test shows nothing. A request that timed out may have been charged.
        assert!(admitted >= self.allowed.limit / 2, "{admitted} of {allowed}:\n{}", log_tails());
        let (first, recovered) = (self.first, self.recovered);
        assert!(
            recovered < MAX_RECOVERY && first < MAX_RECOVERY,
            "{first:?}, {recovered:?}:\n{}",
            log_tails()
        );
    }
}

impl Report {
    /// Lists the admissions of each key: by Redis, by nodes without it, and by the gateway, which does
    /// not report the source.
    fn by_key(&self) -> String {
        let granted = |key: usize, degraded: Option<bool>| {
            let is = |it: &&Sample| it.tight == Some(key) && it.allowed && it.degraded == degraded;
            self.samples.iter().filter(is).count()
        };
        let each = |key| [Some(false), Some(true), None].map(|degraded| granted(key, degraded));
        (0..KEYS).map(|key| format!("{:?}", each(key))).collect::<Vec<_>>().join(" ")
    }
}

/// Writes a row for `make faults`.
pub(crate) fn write_row(place: u32, row: &Value) {
    let folder = folder();
    fs::create_dir_all(&folder).unwrap();
    let mut row = row.clone();
    row["place"] = place.into();
    row["server"] = version().into();
    row["cores"] = std::thread::available_parallelism().map_or(1, usize::from).into();
    fs::write(folder.join(format!("{place:03}.json")), format!("{row:#}\n")).unwrap();
    println!("{row:#}");
}

/// Returns the directory for rows, beside the build output.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("faults")
}

/// Returns the version, such as `Redis 8.0.2`.
fn version() -> String {
    let mut command = Command::new("redis-server");
    command.arg("--version");
    let said = ProgramOutput::of(command).stdout;
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    format!("Redis {}", version.unwrap_or("of an unknown version"))
}
