//! Counts the instructions of one check with callgrind, which is free of timing noise.
//!
//! The program runs itself under callgrind, for one case and one subject, with N checks and with 2 N; the difference
//! excludes one-time work. Only the measured loop is counted, because the setup calibrates a clock for a varying
//! time.

use std::io;
use std::process::{Child, Command, Stdio};

/// Checks of the shorter run.
pub const CHECKS: usize = 20_000;

/// Advice if valgrind is missing.
pub const HOW_TO_INSTALL: &str =
    "valgrind is not installed, so instructions are not counted (Debian, Ubuntu: apt-get install valgrind)";

/// Whether instructions can be counted.
pub fn is_installed() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the instructions of one check.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn instructions(case: &str, subject: &str) -> io::Result<f64> {
    // Both runs in parallel: there are two cores, and counting is not affected by load.
    let runs = [CHECKS, 2 * CHECKS].map(|checks| start(case, subject, checks));
    let [short, long] = runs.map(|run| collected(run?));
    Ok((long? - short?) as f64 / CHECKS as f64)
}

fn start(case: &str, subject: &str, checks: usize) -> io::Result<Child> {
    Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_loop*"])
        .arg(std::env::current_exe()?)
        .args(["--count", case, subject, &checks.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Returns the count that callgrind reports.
fn collected(run: Child) -> io::Result<u64> {
    let output = run.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok()).filter(|_| output.status.success());
    count.ok_or_else(|| io::Error::other(format!("callgrind gave no count:\n{said}")))
}
