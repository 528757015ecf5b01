//! What connections weigh that are open and say nothing.

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

/// Connections that are open at a time.
pub const CONNECTIONS: usize = 10_000;

/// Each needs a descriptor here and one in the contestant, and both need some more.
const DESCRIPTORS: usize = CONNECTIONS + 2_000;

/// Longer than a server takes to accept what has been connected.
const DEADLINE: Duration = Duration::from_secs(10);

/// What a contestant weighs, in MiB resident.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weight {
    /// Who.
    pub subject: &'static str,
    /// With no connection open.
    pub alone: f64,
    /// With connections that have never asked for anything.
    pub silent: f64,
    /// With connections that have each asked once.
    pub asked: f64,
}

/// Lets this program, and whatever it starts, have so many connections.
pub fn make_room() -> io::Result<()> {
    let limit = format!("--nofile={DESCRIPTORS}:");
    let id = process::id().to_string();
    // The soft limit up to the hard one is anybody's; more is root's.
    succeeds("prlimit", &["--pid", &id, &limit])
        .or_else(|_| succeeds("prlimit", &["--pid", &id, &format!("--nofile={DESCRIPTORS}")]))
}

/// Weighs a contestant: afresh for each kind of connection.
pub fn weigh(track: &Track, contestant: &dyn Contestant) -> io::Result<Weight> {
    let (alone, silent) = hold(track, contestant, |_| Ok(()))?;
    let (_, asked) = hold(track, contestant, |stream| probe::ask_on(stream, upstream::BODY))?;
    Ok(Weight { subject: contestant.name(), alone, silent, asked })
}

/// Resident before and with all connections open.
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

/// A connection in the kernel's queue weighs nothing yet, and a closed one nothing any more.
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
