//! Kernel data about a server: its connections and its memory.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

/// Connections to an address, by their owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connections {
    /// Accepted and held by the process.
    pub(crate) held: usize,
    /// Closed by the process, with bytes that the client has not read: held by the kernel.
    pub(crate) left_behind: usize,
}

const LISTENING: &str = "0A";
const CLOSED_WITH_BYTES_LEFT: &str = "04";

/// Counts the connections to an address of this machine.
pub(crate) fn connections(address: SocketAddr) -> Connections {
    let port = format!(":{:04X}", address.port());
    let mut counted = Connections::default();
    // The kernel may list a connection twice while others change.
    let mut seen = HashSet::new();
    for line in fs::read_to_string("/proc/net/tcp").unwrap().lines().skip(1) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (local, remote, state, inode) = (fields[1], fields[2], fields[3], fields[9]);
        if !local.ends_with(&port) || state == LISTENING || !seen.insert(remote.to_owned()) {
            continue;
        }
        // A connection that no process holds has no inode.
        counted.held += usize::from(inode != "0");
        counted.left_behind += usize::from(inode == "0" && state == CLOSED_WITH_BYTES_LEFT);
    }
    counted
}

/// The memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// The current resident memory.
    pub(crate) resident: u64,
    /// The maximum resident memory.
    pub(crate) peak: u64,
    /// The resident memory without the pages of files, such as the code.
    pub(crate) anonymous: u64,
}

pub(crate) fn memory(process: u32) -> Memory {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap() / 1024
    };
    Memory { resident: field("VmRSS"), peak: field("VmHWM"), anonymous: field("RssAnon") }
}

/// Raises the limit of open files of this process.
pub(crate) fn allow_open_files(count: usize) {
    let process = std::process::id().to_string();
    let raised =
        Command::new("prlimit").args(["--pid", &process, &format!("--nofile={count}:")]).status().unwrap();
    assert!(raised.success(), "this test opens {count} connections, and the machine does not allow it");
}
