//! Counts user-space instructions with perf, if the machine supports it. Many virtual machines do not.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::process::Family;

/// Advice if instructions cannot be counted.
pub const HOW_TO_COUNT: &str =
    "instructions are not counted: `perf stat -e instructions:u` does not work on this machine";

/// A working perf.
#[derive(Clone, Debug)]
pub struct Perf {
    output: PathBuf,
}

impl Perf {
    /// Tries perf. Returns `None` if it does not work. Output goes to `folder`.
    pub fn found(folder: &Path) -> Option<Self> {
        let perf = Self { output: folder.join("perf.csv") };
        let tried = Command::new("perf").args(perf.arguments()).arg("true").output().ok()?;
        (tried.status.success() && perf.counted().is_ok()).then_some(perf)
    }

    /// Returns the command prefix that counts a process family while the command runs.
    pub fn before(&self, family: &Family) -> Vec<String> {
        let mut words = vec!["perf".to_owned()];
        words.extend(self.arguments());
        words.extend(["-p".to_owned(), family.ids(), "--".to_owned()]);
        words
    }

    /// Returns the count of the last run.
    pub fn counted(&self) -> io::Result<u64> {
        let said = fs::read_to_string(&self.output)?;
        parse(&said).ok_or_else(|| io::Error::other(format!("perf counted nothing:\n{said}")))
    }

    fn arguments(&self) -> Vec<String> {
        let output = self.output.to_string_lossy().into_owned();
        ["stat", "-x", ",", "-e", "instructions:u", "-o", &output].map(str::to_owned).into()
    }
}

fn parse(said: &str) -> Option<u64> {
    said.lines().filter(|line| !line.starts_with('#')).find_map(|line| line.split(',').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_count_is_parsed_and_an_error_is_rejected() {
        let head = "# started on Sun Nov 15 13:13:33 2026\n\n";
        assert_eq!(parse(&format!("{head}8123,,instructions:u,100,100.00,,\n")), Some(8_123));
        assert_eq!(parse(&format!("{head}<not supported>,,instructions:u,0,100.00,,\n")), None);
    }
}
