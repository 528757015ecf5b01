//! What the kernel knows of a running program: time on a core, memory, sockets.
//!
//! A program may have children that do its work, as nginx has: all numbers are
//! those of the whole family.

use std::path::Path;
use std::process::{self, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

/// `USER_HZ`: the kernel reports time in these on every architecture Rust runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Runs a small program to its end, and wants it to succeed.
pub fn succeeds(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::other(format!("cannot start {program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), said.trim())))
}

/// A process and all that descend from it.
#[derive(Clone, Debug)]
pub struct Family(Vec<u32>);

impl Family {
    /// The family of a process, as of now.
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

    /// Their ids, separated by commas.
    pub fn ids(&self) -> String {
        let ids: Vec<String> = self.0.iter().map(u32::to_string).collect();
        ids.join(",")
    }

    /// Time on a core, of all threads together.
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

    /// Resident memory in bytes. What members share is counted for each of them.
    pub fn resident(&self) -> io::Result<u64> {
        self.0.iter().map(|id| resident(&fs::read_to_string(format!("/proc/{id}/status"))?)).sum()
    }

    /// Open sockets of all kinds.
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

/// Time that all cores have spent on programs which this one did not start.
///
/// Counts from some moment in the past: take it twice.
pub fn others() -> io::Result<Duration> {
    let machine = ticks(busy(&fs::read_to_string("/proc/stat")?));
    let family = Family::of(process::id())?;
    let stats = family.0.iter().filter_map(|id| Stat::read(*id));
    let ours = stats.map(|stat| ticks(stat.user + stat.system + stat.ended)).sum();
    Ok(machine.saturating_sub(ours))
}

/// Without its core for more than this share of the time, a program was disturbed.
const MAX_WAITED_SHARE: f64 = 0.05;
/// And so was whatever it works with, with others on more than this share of a core.
const MAX_OTHERS_SHARE: f64 = 0.10;

/// Whether other programs took time from what was measured: so much of the time it
/// waited for its core, so many cores did others use.
pub fn are_disturbing(waited: f64, others: f64) -> bool {
    waited > MAX_WAITED_SHARE || others > MAX_OTHERS_SHARE
}

/// Time that threads have spent, and wanted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
    /// Able to run and without a core.
    pub waited: Duration,
}

impl CpuTime {
    /// On a core, in the program or in the kernel.
    pub fn busy(&self) -> Duration {
        self.user + self.system
    }

    /// What has come on top of an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// The part of `/proc/PID/stat` that matters here; times in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    user: u64,
    system: u64,
    /// Of children that have ended.
    ended: u64,
}

impl Stat {
    fn read(id: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name, in brackets, may itself hold blanks and brackets.
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let user = fields.nth(9)?.parse().ok()?;
        let system = fields.next()?.parse().ok()?;
        let ended = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        Some(Self { parent, user, system, ended })
    }
}

/// Ticks that all cores were neither idle nor waiting nor taken away.
fn busy(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_ascii_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect();
    // user nice system, then idle and iowait, then irq softirq, then steal and guests.
    fields.iter().take(3).chain(fields.iter().skip(5).take(2)).sum()
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 1_000 / TICKS_PER_SECOND)
}

/// How long the threads of a process waited for a core; zero where the kernel does not say.
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
    fn a_family_has_the_children_too() {
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
