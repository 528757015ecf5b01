//! A network between a test and a server that can lose packets or be cut.
//!
//! It is a pair of virtual interfaces: one end here, the other in a network namespace where the
//! server runs. Packets are dropped inside the namespace, so nothing outside the test is affected.
//! Needs root, directly or through `sudo`.
//!
//! It cannot delay packets: that needs `netem`, which some kernels lack.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::{ProgramOutput, Scratch};

/// A network of two addresses. Removed when dropped.
pub struct Lan {
    name: String,
    /// The name of the interface at our end.
    cable: String,
    far: Ipv4Addr,
    files: Scratch,
}

impl Lan {
    /// Creates a working network, on unused addresses.
    pub fn new() -> Self {
        let sudo = || Command::new("sudo").args(["-n", "true"]).output();
        assert!(
            is_root() || sudo().is_ok_and(|it| it.status.success()),
            "a network namespace needs root: run this test as root, or allow `sudo` without a password"
        );
        loop {
            // 198.18.0.0/15 is reserved for tests of networks (RFC 2544); four addresses each.
            let number = u32::try_from(RandomState::new().hash_one(0) % (1 << 15)).expect("below 2^15");
            let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * number;
            let (near, far) = (Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2));
            let (name, cable) = (format!("tollgate-test-{number}"), format!("tgtest{number}"));
            // Named by its addresses, so that two tests never use the same.
            let added = try_run(&["ip", "netns", "add", &name]);
            if added.as_ref().is_err_and(|message| message.contains("File exists")) {
                continue;
            }
            added.unwrap_or_else(|message| fail(&message));
            let lan = Self { name, cable, far, files: Scratch::new() };
            let (name, cable) = (&*lan.name, &*lan.cable);
            run(&["ip", "link", "add", cable, "type", "veth", "peer", "name", "far", "netns", name]);
            run(&["ip", "address", "add", &format!("{near}/30"), "dev", cable]);
            run(&["ip", "link", "set", cable, "up"]);
            run(&["ip", "-n", name, "address", "add", &format!("{far}/30"), "dev", "far"]);
            run(&["ip", "-n", name, "link", "set", "far", "up"]);
            run(&["ip", "-n", name, "link", "set", "lo", "up"]);
            return lan;
        }
    }

    /// Returns the address of the far end.
    pub fn address(&self) -> Ipv4Addr {
        self.far
    }

    /// Drops this percentage of the packets from now on, in both directions. The kernel chooses
    /// them.
    pub fn drop_packets(&self, percent: u8) {
        if percent >= 100 {
            return self.cut();
        }
        self.filter(&format!("numgen random mod 100 < {percent} drop"));
    }

    /// Drops all packets in both directions, without notifying either end.
    pub fn cut(&self) {
        self.filter("drop");
    }

    /// Stops dropping packets.
    pub fn mend(&self) {
        self.filter("accept");
    }

    fn filter(&self, rule: &str) {
        let rules = format!(
            "flush ruleset\ntable inet tollgate {{\n\
             chain in {{ type filter hook input priority 0; iifname far {rule}; }}\n\
             chain out {{ type filter hook output priority 0; oifname far {rule}; }}\n}}\n"
        );
        let rules = self.files.write("rules.nft", &rules);
        run(&["ip", "netns", "exec", &self.name, "nft", "-f", &rules.to_string_lossy()]);
    }

    /// Returns the command prefix that runs a program inside the namespace.
    pub(crate) fn inside(&self) -> Vec<String> {
        let words = ["ip", "netns", "exec", &self.name];
        self.as_root().into_iter().chain(words.map(ToString::to_string)).collect()
    }

    /// Returns the command prefix that runs a command as root; empty if we are root.
    #[allow(clippy::unused_self, reason = "only a network needs it")]
    pub(crate) fn as_root(&self) -> Vec<String> {
        root_prefix().iter().map(ToString::to_string).collect()
    }
}

impl Default for Lan {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // The interface goes first: a namespace lives as long as a process in it.
        let _ = try_run(&["ip", "link", "delete", &self.cable]);
        let _ = try_run(&["ip", "netns", "delete", &self.name]);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

fn root_prefix() -> &'static [&'static str] {
    if is_root() { &[] } else { &["sudo", "-n"] }
}

fn try_run(words: &[&str]) -> Result<(), String> {
    let words = [root_prefix(), words].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let finished = ProgramOutput::of(command);
    if finished.code == Some(0) { Ok(()) } else { Err(format!("{words:?}: {}", finished.stderr.trim())) }
}

fn run(words: &[&str]) {
    try_run(words).unwrap_or_else(|message| fail(&message));
}

#[allow(clippy::panic, reason = "a panic fails the test")]
fn fail(message: &str) {
    panic!("cannot create a network namespace: {message}");
}
