//! The request of the service benchmark: charge one unit of a key.
//!
//! Every server has two limits. One is ample: the load cannot exhaust it, and its remaining units tell how often a
//! key was charged, because almost nothing refills during a run. The other is small, and proves that the server
//! refuses.

pub mod grpc;
pub mod http;
mod message;
pub mod resp;
pub mod varied_grpc;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::sample::Pace;

/// Number of keys of a load, if its generator supports several.
pub const KEYS: u64 = 100_000;

/// Time limit of a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A number of units per period, all of which may be used at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The units.
    pub units: u64,
    /// The period in seconds.
    pub seconds: u64,
}

impl Limit {
    /// More than a load requests for one of its many keys. One unit refills in a hundred seconds.
    pub const AMPLE: Self = Self { units: 1_000_000, seconds: 100_000_000 };
    /// More than a load requests for its only key. One unit refills in ten seconds.
    pub const AMPLE_FOR_ALL: Self = Self { units: 10_000_000, seconds: 100_000_000 };
    /// Exhausted after two requests.
    pub const SMALL: Self = Self { units: 2, seconds: 86_400 };

    /// Formats the limit as a bucket of a policy.
    pub fn bucket(self) -> String {
        format!("{}/{}s", self.units, self.seconds)
    }
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request was admitted.
    pub admitted: bool,
    /// Remaining units.
    pub left: u64,
    /// Bytes of the response, including its head.
    pub bytes: usize,
}

/// The amount of a load.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Approximate seconds.
    pub seconds: u64,
    /// Expected responses per second, for generators that need a number of requests.
    pub per_second: f64,
}

impl Amount {
    #[allow(clippy::cast_precision_loss, reason = "seconds are few")]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a pace is above zero")]
    fn requests(self) -> u64 {
        (self.seconds as f64 * self.per_second).ceil().max(1.0) as u64
    }
}

/// A protocol and its request.
pub trait Question {
    /// Sets up the server before the first request.
    fn prepare(&self, _server: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    /// Returns the limit of the load.
    fn ample(&self) -> Limit {
        Limit::AMPLE
    }

    /// Returns the number of keys of the load.
    fn keys(&self) -> u64 {
        KEYS
    }

    /// Whether the server can refuse; if not, it is a yardstick instead of a limiter.
    fn refuses(&self) -> bool {
        true
    }

    /// Sends one request, under the ample or the small limit.
    fn ask(&self, server: SocketAddr, limit: Limit, key: &str) -> io::Result<Answer>;

    /// Returns the bytes of one request on a connection that stays open. `None` if a tool sends it.
    fn request(&self, _server: SocketAddr, _limit: Limit, _key: &str) -> Option<Vec<u8>> {
        None
    }

    /// Sends a load, under the ample limit. Returns an error for any unexpected response.
    fn load(&self, server: SocketAddr, amount: Amount, folder: &Path) -> io::Result<Pace>;
}

/// Returns a key of the load, in the format of redis-benchmark.
pub fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Sends bytes on a new connection.
fn send(server: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

/// Sends bytes, and reads until the server closes the connection.
fn exchange(server: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    send(server, bytes)?.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Returns the output of a program that succeeds.
pub(super) fn said(mut command: Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(|error| io::Error::other(format!("cannot start {name}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name} ended with {}:\n{said}{complaint}", output.status)))
}

/// Returns the error for an unexpected response.
fn surprise(answer: &impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("not an answer: {answer:?}"))
}
