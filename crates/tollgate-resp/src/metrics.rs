//! Counters of commands and connections.
//!
//! A connection counts locally and adds its counts after each read, so that workers do not contend
//! for counters at each command.
//!
//! Invariant: labels are constants. Data of clients never creates a time series.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

use crate::command::{COMMANDS, Command, KINDS};

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandResult {
    /// The limit had room.
    Allowed,
    /// The limit had no room.
    Limited,
    /// Answered without a decision.
    Ok,
    /// Answered with an error.
    Error,
}

const RESULTS: [&str; 4] = ["allowed", "limited", "ok", "error"];

/// The reason why the server closed a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CloseReason {
    /// No complete command arrived in time.
    Idle,
    /// The client did not read its replies.
    Stalled,
    /// A protocol error.
    Malformed,
    /// The client did not authenticate in time, or tried too many wrong passwords.
    Unauthenticated,
}

const REASONS: [&str; 4] = ["idle", "stalled", "malformed", "stranger"];

/// The counts of all connections. No other memory depends on them, so relaxed ordering is
/// sufficient.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    commands: [[AtomicU64; RESULTS.len()]; KINDS],
    closed: [AtomicU64; REASONS.len()],
    opened: AtomicU64,
    ended: AtomicU64,
    wrong_passwords: AtomicU64,
}

/// The counts of one connection since the last `add`.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    commands: [[u32; RESULTS.len()]; KINDS],
    /// A bit set of the commands with counts.
    touched: u32,
}

impl Tally {
    #[inline]
    pub(crate) fn count(&mut self, command: Command, result: CommandResult) {
        let kind = command as usize;
        self.commands[kind][result as usize] += 1;
        self.touched |= 1 << kind;
    }
}

impl Counters {
    pub(crate) fn add(&self, tally: &mut Tally) {
        let mut touched = std::mem::take(&mut tally.touched);
        while touched != 0 {
            let kind = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            for (total, count) in self.commands[kind].iter().zip(&mut tally.commands[kind]) {
                if *count > 0 {
                    total.fetch_add(u64::from(std::mem::take(count)), Ordering::Relaxed);
                }
            }
        }
    }

    /// Counts a connection and returns its number.
    pub(crate) fn open(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn close(&self, why: CloseReason) {
        self.closed[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrong_password(&self) {
        self.wrong_passwords.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of open connections, and of all connections so far.
    pub(crate) fn connections(&self) -> (u64, u64) {
        let (ended, opened) = (self.ended.load(Ordering::Relaxed), self.opened.load(Ordering::Relaxed));
        (opened.saturating_sub(ended), opened)
    }

    /// The number of answered commands.
    pub(crate) fn answered(&self) -> u64 {
        self.commands.iter().flatten().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Appends all counters in the Prometheus text format.
    pub(crate) fn write(&self, out: &mut String) {
        let ((now, ever), mut to) = (self.connections(), Exposition::new(out));
        let help = "Commands over RESP, by result.";
        let mut family = to.family("tollgate_resp_commands_total", Counter, help);
        for (kind, counts) in self.commands.iter().enumerate() {
            let name = COMMANDS.get(kind).map_or("unknown", |about| about.name);
            for (result, count) in RESULTS.iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    family.value(&[("command", name), ("result", result)], count);
                }
            }
        }
        to.one("tollgate_resp_connections", Gauge, "Connections over RESP that are open.", now);
        to.one("tollgate_resp_connections_total", Counter, "Connections over RESP.", ever);
        let help = "Connections over RESP that the server closed, by reason.";
        let mut family = to.family("tollgate_resp_connections_closed_total", Counter, help);
        for (reason, count) in REASONS.iter().zip(&self.closed) {
            family.value(&[("reason", reason)], count.load(Ordering::Relaxed));
        }
        let wrong = self.wrong_passwords.load(Ordering::Relaxed);
        to.one("tollgate_resp_wrong_passwords_total", Counter, "Wrong passwords over RESP.", wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_connections_add_up() {
        let (counters, mut tally) = (Counters::default(), Tally::default());
        for _ in 0..3 {
            tally.count(Command::ClThrottle, CommandResult::Allowed);
        }
        tally.count(Command::Unknown, CommandResult::Error);
        counters.add(&mut tally);
        counters.add(&mut tally);
        assert_eq!((counters.open(), counters.open()), (1, 2));
        counters.end();
        let mut out = String::new();
        counters.write(&mut out);
        for line in [
            "tollgate_resp_commands_total{command=\"cl.throttle\",result=\"allowed\"} 3\n",
            "tollgate_resp_commands_total{command=\"unknown\",result=\"error\"} 1\n",
            "tollgate_resp_connections 1\n",
            "tollgate_resp_connections_closed_total{reason=\"idle\"} 0\n",
        ] {
            assert!(out.contains(line), "{out}");
        }
    }
}
