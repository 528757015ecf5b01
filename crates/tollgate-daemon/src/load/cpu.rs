//! The CPU utilization of this process and of its cgroup.
//!
//! The process is measured against the cores that it may use, its cgroup against its quota; the larger
//! of both counts. A cgroup without a quota is not measured: its other processes are limited by the
//! machine only, and refusing requests here would not stop them.
//!
//! Linux only. Elsewhere, and where the files are missing or unreadable, the reading is absent, and the
//! log says so once.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tollgate::Timestamp;

use super::cgroup::quotas;

/// The unit of the CPU times in `/proc`: a hundredth of a second on every platform (`USER_HZ`).
const MICROS_PER_TICK: u64 = 10_000;

/// The file with the CPU times of this process.
const PROCESS_FILE: &str = "proc/self/stat";

/// Reads the CPU utilization from files below a root directory.
pub(crate) struct CpuReader {
    root: PathBuf,
    cores: u64,
    process: Usage,
    cgroups: HashMap<PathBuf, Usage>,
    has_warned: bool,
}

impl CpuReader {
    /// Creates a reader of the files below `root`, on a number of cores.
    pub(crate) fn new(root: impl Into<PathBuf>, cores: usize) -> Self {
        let cores = u64::try_from(cores.max(1)).unwrap_or(u64::MAX);
        Self {
            root: root.into(),
            cores,
            process: Usage::default(),
            cgroups: HashMap::new(),
            has_warned: false,
        }
    }

    /// Returns the utilization since the last reading, in thousandths. `None` for the first reading,
    /// and if neither the process nor a cgroup can be measured.
    pub(crate) fn read(&mut self, now: Timestamp) -> Option<u32> {
        let used = process_micros(&self.root);
        let limits = quotas(&self.root);
        self.warn_once(used.is_none(), limits.is_none());
        let process = used.and_then(|used| self.process.update(now, used, self.cores * 1_000));
        let mut largest = process;
        // A directory that is gone has no entry any more.
        let mut known = std::mem::take(&mut self.cgroups);
        for quota in limits.unwrap_or_default() {
            let mut usage = known.remove(&quota.folder).unwrap_or_default();
            largest = largest.max(usage.update(now, quota.used_micros, quota.millicores));
            self.cgroups.insert(quota.folder, usage);
        }
        largest
    }

    fn warn_once(&mut self, no_process: bool, no_cgroup: bool) {
        if !(no_process || no_cgroup) || std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        match (no_process, no_cgroup) {
            (true, true) => tracing::warn!(
                "neither /proc/self/stat nor the cgroup can be read: the signal `cpu` of `shed.node` is not measured, the other signals are"
            ),
            (true, false) => {
                tracing::warn!(
                    "/proc/self/stat cannot be read: `cpu` of `shed.node` is that of the cgroup only"
                );
            }
            _ => tracing::warn!(
                "the cgroup of this process cannot be read: `cpu` of `shed.node` is that of the process only"
            ),
        }
    }
}

/// The last reading of a counter of CPU time.
#[derive(Clone, Copy, Default)]
struct Usage {
    last: Option<(Timestamp, u64)>,
}

impl Usage {
    /// Returns the utilization of `millicores` since the last reading, in thousandths. `None` for the
    /// first reading, if no time has passed, and for a counter that went back.
    fn update(&mut self, now: Timestamp, used_micros: u64, millicores: u64) -> Option<u32> {
        let (at, before) = self.last.replace((now, used_micros))?;
        let used = u128::from(used_micros.checked_sub(before)?);
        let available = u128::from(now.since(at).as_micros()) * u128::from(millicores);
        let utilization = (used * 1_000_000).checked_div(available)?;
        Some(u32::try_from(utilization).unwrap_or(u32::MAX))
    }
}

/// Returns the CPU time of this process, user and system.
fn process_micros(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join(PROCESS_FILE)).ok()?;
    // The name of the program may contain spaces and parentheses; the other fields are numbers.
    let (_, fields) = text.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let mut time = || times.next()?.parse::<u64>().ok();
    time()?.checked_add(time()?)?.checked_mul(MICROS_PER_TICK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::Scratch;

    use crate::load::tests::write;

    fn stat(user: &str, system: &str) -> String {
        format!("42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 {user} {system} 0 0 20 0 4 0 100 0 0")
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn the_process_is_measured_against_its_cores() {
        let files = Scratch::new();
        let mut reader = CpuReader::new(files.path(), 2);
        for (millis, user, system, expected) in [
            (0, "100", "50", None),
            // 0.1 s of CPU time in 0.1 s, of two cores.
            (100, "107", "53", Some(500)),
            (100, "108", "53", None),
            (1_100, "108", "253", Some(1_000)),
            // A counter that went back.
            (1_200, "1", "2", None),
            (1_300, "1", "7", Some(250)),
            (1_400, "18446744073709551615", "7", None),
            (1_500, "garbage", "7", None),
            (1_600, "-4", "7", None),
            (1_700, "1", "17", None),
            (1_800, "1", "19", Some(100)),
        ] {
            write(&files, PROCESS_FILE, &stat(user, system));
            let found = reader.read(at(millis));
            // An unreadable time in between lengthens the interval.
            let expected = if millis == 1_700 { Some(125) } else { expected };
            assert_eq!(found, expected, "at {millis} ms, {user} and {system}");
        }
        for odd in ["", "42", "42 (a", "42 (a)", "42 (a) S 1 2 3", "\u{0}\u{0}", &stat("", "")] {
            write(&files, PROCESS_FILE, odd);
            assert_eq!(reader.read(at(2_000)), None, "{odd:?}");
        }
    }

    #[test]
    fn the_cgroup_is_measured_against_its_quota_and_the_larger_one_counts() {
        let files = Scratch::new();
        write(&files, "proc/self/cgroup", "0::/app\n");
        write(&files, "sys/fs/cgroup/app/cpu.max", "50000 100000\n");
        let mut reader = CpuReader::new(files.path(), 4);
        let mut read = |millis: u64, used: u64, ticks: u64| {
            write(&files, "sys/fs/cgroup/app/cpu.stat", &format!("usage_usec {used}\nuser_usec 1\n"));
            write(&files, PROCESS_FILE, &stat(&ticks.to_string(), "0"));
            reader.read(at(millis))
        };
        assert_eq!(read(0, 1_000_000, 0), None);
        // 40 ms in 100 ms, of half a core; the process has used 10 % of a core of four.
        assert_eq!(read(100, 1_040_000, 1), Some(800));
        assert_eq!(read(200, 1_040_000, 41), Some(1_000));
        // The counter of the cgroup went back: the process still counts.
        assert_eq!(read(300, 0, 45), Some(100));
        assert_eq!(read(400, u64::MAX, 49), Some(u32::MAX));
    }

    #[test]
    fn without_any_file_there_is_no_reading() {
        let files = Scratch::new();
        let mut reader = CpuReader::new(files.path().join("none"), 0);
        assert_eq!([reader.read(at(0)), reader.read(at(100))], [None, None]);
        assert!(reader.has_warned);
    }
}
