//! Where a number was taken. It means little anywhere else.

use std::process::Command;

use serde::Serialize;

/// Where a run took place, and of what.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores this program may use.
    pub cores: usize,
    /// The compiler.
    pub rustc: String,
    /// The commit that was measured; `+` when the tree had changes.
    pub commit: String,
}

impl Machine {
    /// This one.
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

/// What a program says; nothing when it is not there.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
