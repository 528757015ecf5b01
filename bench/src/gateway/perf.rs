//! Instructions in user space, where the machine counts them. Many virtual machines do not.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::process::Family;

/// What to say where nothing can be counted.
pub const HOW_TO_COUNT: &str =
    "instructions are not counted: `perf stat -e instructions:u` does not work on this machine";

/// perf, where it works.
#[derive(Clone, Debug)]
pub struct Perf {
    output: PathBuf,
}

impl Perf {
    /// Tries it, and gives nothing where it does not work. Its output goes into `folder`.
    pub fn found(folder: &Path) -> Option<Self> {
        let perf = Self { output: folder.join("perf.csv") };
        let tried = Command::new("perf").args(perf.arguments()).arg("true").output().ok()?;
        (tried.status.success() && perf.counted().is_ok()).then_some(perf)
    }

    /// What to put before a command, for counting a family while that command runs.
    pub fn before(&self, family: &Family) -> Vec<String> {
        let mut words = vec!["perf".to_owned()];
        words.extend(self.arguments());
        words.extend(["-p".to_owned(), family.ids(), "--".to_owned()]);
        words
    }

    /// What the last run counted.
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
    fn a_count_is_read_and_an_excuse_is_not() {
        let head = "# started on Sun Nov 15 13:13:33 2026\n\n";
        assert_eq!(parse(&format!("{head}8123,,instructions:u,100,100.00,,\n")), Some(8_123));
        assert_eq!(parse(&format!("{head}<not supported>,,instructions:u,0,100.00,,\n")), None);
    }
}
