//! Kernel statistics of running programs: CPU time, memory, sockets.
//!
//! A program may have worker processes, as nginx does: all numbers are those of the process and its descendants.

use std::path::Path;
use std::process::{self, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

/// `USER_HZ`: the unit of kernel times on every architecture that Rust supports.
const TICKS_PER_SECOND: u64 = 100;

/// Runs a program and checks that it succeeds.
pub fn succeeds(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::other(format!("cannot start {program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), said.trim())))
}

/// A process and its descendants.
#[derive(Clone, Debug)]
pub struct Family(Vec<u32>);

impl Family {
    /// Returns the current family of a process.
    pub fn of(ancestor: u32) -> io::Result<Self> {
        let mut parents = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process may end between being listed and being read.
            if let Some(stat) = Stat::read(id) {
                parents.push((id, stat.parent));
            }
        }
        let mut family = vec![ancestor];
        let mut at = 0;
        while let Some(&member) = family.get(at) {
            family.extend(parents.iter().filter(|(_, parent)| *parent == member).map(|(id, _)| *id));
            at += 1;
        }
        Ok(Self(family))
    }

    /// Returns the process ids, separated by commas.
    pub fn ids(&self) -> String {
        let ids: Vec<String> = self.0.iter().map(u32::to_string).collect();
        ids.join(",")
    }

    /// Returns the CPU time of all threads.
    pub fn time(&self) -> io::Result<CpuTime> {
        let mut total = CpuTime::default();
        for id in &self.0 {
            let stat = Stat::read(*id).ok_or_else(|| io::Error::other(format!("process {id} has ended")))?;
            total.user += ticks(stat.user);
            total.system += ticks(stat.system);
            total.waited += waited(*id);
        }
        Ok(total)
    }

    /// Returns the resident memory in bytes. Shared memory is counted for each member.
    pub fn resident(&self) -> io::Result<u64> {
        self.0.iter().map(|id| resident(&fs::read_to_string(format!("/proc/{id}/status"))?)).sum()
    }

    /// Returns the number of open sockets.
    pub fn sockets(&self) -> io::Result<usize> {
        let mut sockets = 0;
        for id in &self.0 {
            for entry in fs::read_dir(format!("/proc/{id}/fd"))? {
                // An entry may be closed between being listed and being read.
                let target = fs::read_link(entry?.path());
                sockets += usize::from(target.is_ok_and(|target| is_socket(&target)));
            }
        }
        Ok(sockets)
    }
}

/// Returns the CPU time of all programs that this one did not start.
///
/// The origin is arbitrary: use differences.
pub fn others() -> io::Result<Duration> {
    let machine = ticks(busy(&fs::read_to_string("/proc/stat")?));
    let family = Family::of(process::id())?;
    let stats = family.0.iter().filter_map(|id| Stat::read(*id));
    let ours = stats.map(|stat| ticks(stat.user + stat.system + stat.ended)).sum();
    Ok(machine.saturating_sub(ours))
}

/// The largest share of time that an undisturbed program waited for its core.
const MAX_WAITED_SHARE: f64 = 0.05;
/// The largest use of a core by other programs during an undisturbed measurement.
const MAX_OTHERS_SHARE: f64 = 0.10;

/// Whether other programs disturbed a measurement: the share of time that it waited for its core, and the cores that
/// others used.
pub fn are_disturbing(waited: f64, others: f64) -> bool {
    waited > MAX_WAITED_SHARE || others > MAX_OTHERS_SHARE
}

/// CPU time and waiting time of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in user space.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Time runnable without a core.
    pub waited: Duration,
}

impl CpuTime {
    /// Returns user plus system time.
    pub fn busy(&self) -> Duration {
        self.user + self.system
    }

    /// Returns the difference from an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// The used part of `/proc/PID/stat`; times in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    user: u64,
    system: u64,
    /// CPU time of children that have ended.
    ended: u64,
}

impl Stat {
    fn read(id: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name, in brackets, may contain blanks and brackets.
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let user = fields.nth(9)?.parse().ok()?;
        let system = fields.next()?.parse().ok()?;
        let ended = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        Some(Self { parent, user, system, ended })
    }
}

/// Returns the ticks in which cores were neither idle nor waiting nor stolen.
fn busy(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_ascii_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect();
    // user nice system, then idle and iowait, then irq softirq, then steal and guests.
    fields.iter().take(3).chain(fields.iter().skip(5).take(2)).sum()
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 1_000 / TICKS_PER_SECOND)
}

/// Returns the time that the threads of a process waited for a core; zero if the kernel does not report it.
fn waited(id: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let line = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        line.split(' ').nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn resident(status: &str) -> io::Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1_024).ok_or_else(|| io::Error::other("the kernel does not say what is resident"))
}

fn is_socket(target: &Path) -> bool {
    target.to_str().is_some_and(|target| target.starts_with("socket:"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::{Command, Family, Stat, Stdio, busy, resident};

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 10 0 0 0 150 250 3 4 20 0 1 0 100 1 1";
        assert_eq!(Stat::parse(line), Some(Stat { parent: 7, user: 150, system: 250, ended: 7 }));
    }

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy_time() {
        assert_eq!(busy("cpu  1 20 300 9 9 4000 50000 9 0 0\ncpu0 7 7 7 7 7 7 7 7 0 0\n"), 54_321);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(resident(status).unwrap(), 1 << 20);
        assert!(resident("Name:\tx\n").is_err());
    }

    #[test]
    fn a_family_includes_children() {
        // `cat` ends when its input does, and the shell with it.
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat; :"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(b"!").unwrap();
        shell.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let family = Family::of(shell.id()).unwrap();
        let (time, resident) = (family.time(), family.resident());
        drop(input);
        shell.wait().unwrap();
        assert_eq!((family.0.len(), family.0[0]), (2, shell.id()));
        assert!(time.is_ok() && resident.unwrap() > 0);
        assert!(family.time().is_err(), "they have ended");
    }
}
