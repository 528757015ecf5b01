//! The programs that read a log, and their measurements.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

use crate::stopwatch;

/// The replayed policy, a typical first one.
const POLICY: &str = "limits:\n  - name: per-client\n    by: ip\n    bucket: 100/minute\n";

/// A program that reads logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contestant {
    /// `tollgate replay`, which decides every request.
    Tollgate,
    /// Debian's goaccess, which counts requests.
    Goaccess,
}

/// The measurement of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReadOptions {
    /// Wall time in seconds.
    pub seconds: f64,
    /// The peak resident memory.
    pub peak_bytes: u64,
}

impl Contestant {
    /// All programs, in the order of the table.
    pub const ALL: [Self; 2] = [Self::Tollgate, Self::Goaccess];

    /// Returns the name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::Goaccess => "goaccess",
        }
    }

    /// Reads a log of this many lines, with output in `folder`. Returns an error if not all lines were read.
    pub fn read(self, tollgate: &Path, log: &Path, lines: usize, folder: &Path) -> io::Result<ReadOptions> {
        let (answer, peak) = (folder.join(self.name()).with_extension("json"), folder.join("peak"));
        // GNU time reports the peak memory that the kernel counted.
        let mut command = Command::new("time");
        command.arg("--format=%M").arg("--output").arg(&peak).stdin(Stdio::null()).stderr(Stdio::piped());
        match self {
            Self::Tollgate => {
                let policy = folder.join("policy.yaml");
                fs::write(&policy, POLICY)?;
                command.arg(tollgate).arg("replay").arg("--policy").arg(policy).arg("--json").arg(log);
                command.stdout(fs::File::create(&answer)?);
            }
            Self::Goaccess => {
                command.arg("goaccess").arg(log).args([
                    "--log-format=COMBINED",
                    "--no-global-config",
                    "--no-progress",
                ]);
                command.arg("-o").arg(&answer).stdout(Stdio::null());
            }
        }
        let (output, elapsed) = stopwatch::time(|| command.output());
        let output = output.map_err(|error| io::Error::other(format!("cannot start time: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("{}: {}", self.name(), said.trim())));
        }
        let counted = self.counted(&serde_json::from_slice(&fs::read(&answer)?)?);
        if counted != Some((lines as u64, 0)) {
            let text = format!("{} read {counted:?} of {lines} lines (requests, skipped)", self.name());
            return Err(io::Error::other(text));
        }
        let kib = fs::read_to_string(&peak)?.trim().parse::<u64>();
        let kib = kib.map_err(|error| io::Error::other(format!("GNU time did not say a number: {error}")))?;
        Ok(ReadOptions { seconds: elapsed.as_secs_f64(), peak_bytes: kib * 1_024 })
    }

    /// Returns the requests and skipped lines that the program reports.
    fn counted(self, answer: &Value) -> Option<(u64, u64)> {
        let (requests, skipped) = match self {
            Self::Tollgate => ("/requests", "/skipped_lines"),
            Self::Goaccess => ("/general/total_requests", "/general/failed_requests"),
        };
        Some((answer.pointer(requests)?.as_u64()?, answer.pointer(skipped)?.as_u64()?))
    }
}
