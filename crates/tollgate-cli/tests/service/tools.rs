//! Runs the tools, and parses their output.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_testkit::{ProgramOutput, Scratch};

/// The protocol of `h2load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// HTTP/2 without TLS.
    Http2,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// The number of responses by status. Zero counts missing ones.
pub(crate) type Statuses = BTreeMap<u16, usize>;

/// Sends requests over a few connections at once, and counts the responses by status.
#[track_caller]
pub(crate) fn h2load(protocol: Protocol, url: &str, requests: usize, more: &[&str]) -> Statuses {
    let files = Scratch::new();
    let log = files.path().join("requests.log");
    let mut command = Command::new("h2load");
    match protocol {
        Protocol::Http1 => command.arg("--h1"),
        Protocol::Http2 => command.args(["-m", "8"]),
    };
    command.args(["-c", "8", "-n", &requests.to_string()]).arg(format!("--log-file={}", log.display()));
    let finished = ProgramOutput::of({
        command.args(more).arg(url);
        command
    });
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let log = fs::read_to_string(&log).unwrap();
    let mut statuses = Statuses::new();
    for line in log.lines() {
        // Time, status, duration.
        let status = line.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        *statuses.entry(status).or_default() += 1;
    }
    let logged = statuses.values().sum::<usize>();
    if logged < requests {
        *statuses.entry(0).or_default() += requests - logged;
    }
    statuses
}

/// Returns a program that `setup/python` has installed.
#[track_caller]
pub(crate) fn python_tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin").join(name);
    assert!(path.exists(), "target/tools/bin/{name} is missing: run `make test`, which installs it");
    path
}
