//! The machine of a measurement. Numbers of different machines are not comparable.

use std::process::Command;

use serde::Serialize;

/// The machine, the compiler and the commit of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Cores that this program may use.
    pub cores: usize,
    /// Version of the compiler.
    pub rustc: String,
    /// The measured commit; with `+` if the tree had changes.
    pub commit: String,
}

impl Machine {
    /// Reads the properties of this machine.
    pub fn here() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name =
            cpu.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
        let changed = if said("git", &["status", "--porcelain"]).is_empty() { "" } else { "+" };
        Self {
            processor: name.map_or_else(|| "unknown".into(), |(_, name)| name.trim().into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            rustc: said("rustc", &["--version"]),
            commit: said("git", &["rev-parse", "--short", "HEAD"]) + changed,
        }
    }
}

/// Returns the output of a program; empty if it does not exist.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
