//! Measures the memory of idle connections.

use std::io;
use std::net::TcpStream;
use std::process;
use std::time::Duration;

use serde::Serialize;

use super::contestant::{Contestant, Duty};
use super::trial::Track;
use super::{probe, upstream};
use crate::process::succeeds;
use crate::server::Server;
use crate::stopwatch;

/// Number of open connections.
pub const CONNECTIONS: usize = 10_000;

/// File descriptors: one per connection here and in the contestant, and some more.
const DESCRIPTORS: usize = CONNECTIONS + 2_000;

/// Time limit for a server to accept all connections.
const DEADLINE: Duration = Duration::from_secs(10);

/// Resident memory of a contestant, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weight {
    /// Name of the contestant.
    pub subject: &'static str,
    /// Without connections.
    pub alone: f64,
    /// With connections that have sent no request.
    pub silent: f64,
    /// With connections that have sent one request each.
    #[serde(rename = "asked")]
    pub active: f64,
}

/// Raises the file descriptor limit of this program and its children.
pub fn make_room() -> io::Result<()> {
    make_room_for(DESCRIPTORS)
}

/// Raises the file descriptor limit of this program and its children to this number.
pub fn make_room_for(descriptors: usize) -> io::Result<()> {
    let limit = format!("--nofile={descriptors}:");
    let id = process::id().to_string();
    // Raising the soft limit up to the hard limit needs no privileges; beyond it needs root.
    succeeds("prlimit", &["--pid", &id, &limit])
        .or_else(|_| succeeds("prlimit", &["--pid", &id, &format!("--nofile={descriptors}")]))
}

/// Measures a contestant, restarted for each kind of connection.
pub fn weigh(track: &Track, contestant: &dyn Contestant) -> io::Result<Weight> {
    let (alone, silent) = hold(track, contestant, |_| Ok(()))?;
    let (_, active) = hold(track, contestant, |stream| probe::ask_on(stream, upstream::BODY))?;
    Ok(Weight { subject: contestant.name(), alone, silent, active })
}

/// Returns the resident memory before and with all connections open.
fn hold(
    track: &Track,
    contestant: &dyn Contestant,
    mut greet: impl FnMut(&mut TcpStream) -> io::Result<()>,
) -> io::Result<(f64, f64)> {
    let server = track.start(contestant, Duty::Admit)?;
    let before = mib(server.family()?.resident()?);
    let mut open = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let mut stream = probe::open(server.address())?;
        greet(&mut stream).map_err(|error| {
            io::Error::other(format!("{}: connection {number}: {error}", contestant.name()))
        })?;
        open.push(stream);
    }
    wait_until_accepted(&server, contestant.name())?;
    let with = mib(server.family()?.resident()?);
    drop(open);
    Ok((before, with))
}

/// Waits until all connections are accepted: a connection in the kernel's backlog takes no memory of the process.
fn wait_until_accepted(server: &Server, name: &str) -> io::Result<()> {
    let start = stopwatch::mark();
    loop {
        let sockets = server.family()?.sockets()?;
        if sockets > CONNECTIONS {
            return Ok(());
        }
        if start.elapsed() > DEADLINE {
            let what = format!("{name} holds {sockets} sockets and should hold more than {CONNECTIONS}");
            return Err(io::Error::other(what));
        }
        stopwatch::pause(Duration::from_millis(50));
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
