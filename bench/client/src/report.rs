//! The table, the JSON and the bars.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::storm::Storm;
use crate::watch::Counts;

/// One subject in one case.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the case.
    pub(crate) case: &'static str,
    /// Name of the subject.
    pub(crate) subject: &'static str,
    /// Calls.
    pub(crate) calls: usize,
    /// Calls that succeeded.
    pub(crate) succeeded: usize,
    /// The time of all calls.
    pub(crate) seconds: f64,
    /// The calls above the burst, as a share of what the limit admits in the time.
    pub(crate) used: f64,
    /// Attempts.
    pub(crate) attempts: usize,
    /// Attempts that were refused.
    pub(crate) refused: usize,
    /// Attempts that were refused after the first second, as a share of the calls.
    pub(crate) refused_share: f64,
    /// Attempts before the time that a received refusal named.
    pub(crate) early: usize,
}

#[allow(clippy::cast_precision_loss)] // shares
impl Row {
    pub(crate) fn new(
        (case, subject): (&'static str, &'static str),
        (calls, succeeded): (usize, usize),
        time: Duration,
        counts: Counts,
    ) -> Self {
        Self {
            case,
            subject,
            calls,
            succeeded,
            seconds: time.as_secs_f64(),
            used: 0.0,
            attempts: counts.attempts,
            refused: counts.refused,
            refused_share: counts.refused_known as f64 / calls.max(1) as f64,
            early: counts.early,
        }
    }

    /// Computes the share of a limit that was used.
    pub(crate) fn with_limit(mut self, rate: f64, burst: f64) -> Self {
        self.used = (self.succeeded as f64 - burst) / rate / self.seconds;
        self
    }

    /// Returns the bars that are missed: all succeed, few refusals, none early, the limit is used.
    fn missed(&self) -> Vec<&'static str> {
        let (max_refused, min_used) =
            if self.case == crate::shared::CASE { (0.005, 0.95) } else { (0.01, 0.97) };
        let bars = [
            (self.succeeded == self.calls, "success"),
            (self.refused_share <= max_refused, "refusals"),
            (self.early == 0, "early"),
            (self.used >= min_used, "use"),
        ];
        bars.into_iter().filter(|(is_met, _)| !is_met).map(|(_, name)| name).collect()
    }
}

/// A run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
    storms: Vec<Storm>,
}

impl Report {
    pub(crate) fn new(rows: Vec<Row>, storms: Vec<Storm>) -> Self {
        Self { rows, storms }
    }

    /// Writes the run to `target/bench/client.json`, and returns the path.
    pub(crate) fn write(&self) -> io::Result<PathBuf> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let folder = root.join("target/bench");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("client.json");
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(path)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "case                     subject                             calls  succeeded  seconds  used   attempts  429     429 known  early  bars"
        )?;
        for row in &self.rows {
            let missed = row.missed();
            let bars =
                if missed.is_empty() { "met".to_owned() } else { format!("missed: {}", missed.join(", ")) };
            writeln!(
                f,
                "{:24} {:34} {:6}  {:9}  {:7.2}  {:.3}  {:8}  {:6}  {:8.2} %  {:5}  {bars}",
                row.case,
                row.subject,
                row.calls,
                row.succeeded,
                row.seconds,
                row.used,
                row.attempts,
                row.refused,
                row.refused_share * 100.0,
                row.early
            )?;
        }
        self.storms.iter().try_for_each(|storm| writeln!(f, "{storm}"))
    }
}
