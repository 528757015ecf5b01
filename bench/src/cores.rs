//! Assigns cores: the measured program has a core to itself, and everything else the remaining ones.

use std::{fs, io, process};

use crate::process as kernel;

/// The cores of a run.
#[derive(Clone, Debug)]
pub struct Cores {
    /// The core of the contestant.
    pub contestant: usize,
    /// The cores of the upstream, of wrk, and of this program.
    pub load: Vec<usize>,
}

impl Cores {
    /// Divides the cores that this program may use.
    pub fn shared_out() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let list =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
        match *parse(list) {
            [contestant, ref load @ ..] if !load.is_empty() => Ok(Self { contestant, load: load.into() }),
            _ => Err(io::Error::other("two cores are needed: one for the contestant, one for the load")),
        }
    }

    /// Moves this program, and its future children, off the contestant's core.
    pub fn move_aside(&self) -> io::Result<()> {
        let load: Vec<String> = self.load.iter().map(usize::to_string).collect();
        kernel::succeeds("taskset", &["-a", "-p", "-c", &load.join(","), &process::id().to_string()])
    }

    /// Whether the contestant's core is a hyperthread sibling of a load core.
    pub fn are_siblings(&self) -> bool {
        let path = format!("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", self.contestant);
        let siblings = parse(&fs::read_to_string(path).unwrap_or_default());
        self.load.iter().any(|core| siblings.contains(core))
    }
}

/// Parses the list format of the kernel: `0-2,5`.
fn parse(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn core_lists_of_the_kernel_are_parsed() {
        assert_eq!(parse("\t0-1\n"), [0, 1]);
        assert_eq!(parse("3"), [3]);
        assert_eq!(parse("0,2-4,7"), [0, 2, 3, 4, 7]);
        assert_eq!(parse(""), [0_usize; 0]);
    }
}
