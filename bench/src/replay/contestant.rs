//! Who reads a log, and what that took.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

use crate::stopwatch;

/// The policy that is replayed: what most people begin with.
const POLICY: &str = "limits:\n  - name: per-client\n    by: ip\n    bucket: 100/minute\n";

/// A program that reads logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contestant {
    /// `tollgate replay`, which decides on every request.
    Tollgate,
    /// Debian's goaccess, which counts them.
    Goaccess,
}

/// What one reading took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReadOptions {
    /// From start to end.
    pub seconds: f64,
    /// The most memory that was resident.
    pub peak_bytes: u64,
}

impl Contestant {
    /// In the order of the table.
    pub const ALL: [Self; 2] = [Self::Tollgate, Self::Goaccess];

    /// As the table has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::Goaccess => "goaccess",
        }
    }

    /// Reads a log of so many lines, in a folder for what comes of it. An error if not all of it was read.
    pub fn read(self, tollgate: &Path, log: &Path, lines: usize, folder: &Path) -> io::Result<ReadOptions> {
        let (answer, peak) = (folder.join(self.name()).with_extension("json"), folder.join("peak"));
        // GNU time says what the kernel counted as the most memory.
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

    /// Requests and skipped lines, as its answer says.
    fn counted(self, answer: &Value) -> Option<(u64, u64)> {
        let (requests, skipped) = match self {
            Self::Tollgate => ("/requests", "/skipped_lines"),
            Self::Goaccess => ("/general/total_requests", "/general/failed_requests"),
        };
        Some((answer.pointer(requests)?.as_u64()?, answer.pointer(skipped)?.as_u64()?))
    }
}
