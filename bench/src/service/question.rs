//! What is asked: may this key have one more?
//!
//! Every server is asked under two limits. One is ample: the load cannot reach it, and what
//! is left of it tells afterwards how often a key was charged, since hardly anything
//! comes back during a run. The other is small, and proves that the server refuses.

pub mod grpc;
pub mod http;
mod message;
pub mod resp;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::sample::Pace;

/// Keys that a load asks about in turn, where its generator can ask about more than one.
pub const KEYS: u64 = 100_000;

/// Longer than an answer takes.
const TIMEOUT: Duration = Duration::from_secs(5);

/// So many units in so many seconds, all of them at once if they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The units.
    pub units: u64,
    /// The seconds.
    pub seconds: u64,
}

impl Limit {
    /// More than a load asks for about one of its many keys. One comes back in a hundred seconds.
    pub const AMPLE: Self = Self { units: 1_000_000, seconds: 100_000_000 };
    /// More than a load asks for about its only key. One comes back in ten seconds.
    pub const AMPLE_FOR_ALL: Self = Self { units: 10_000_000, seconds: 100_000_000 };
    /// Spent after two.
    pub const SMALL: Self = Self { units: 2, seconds: 86_400 };

    /// As a policy writes a bucket.
    pub fn bucket(self) -> String {
        format!("{}/{}s", self.units, self.seconds)
    }
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it may.
    pub admitted: bool,
    /// How many more it may have.
    pub left: u64,
    /// Of the answer, with its head where it has one.
    pub bytes: usize,
}

/// How much a load asks.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// About so long.
    pub seconds: u64,
    /// If so many are answered in a second: some generators are told a number of requests.
    pub per_second: f64,
}

impl Amount {
    #[allow(clippy::cast_precision_loss, reason = "seconds are few")]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a pace is above zero")]
    fn requests(self) -> u64 {
        (self.seconds as f64 * self.per_second).ceil().max(1.0) as u64
    }
}

/// A way to ask.
pub trait Question {
    /// What has to be told to a server before it can be asked.
    fn prepare(&self, _server: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    /// The limit of the load.
    fn ample(&self) -> Limit {
        Limit::AMPLE
    }

    /// Over how many keys the load spreads its requests.
    fn keys(&self) -> u64 {
        KEYS
    }

    /// Whether anything is ever refused; else this is a yardstick and no limiter.
    fn refuses(&self) -> bool {
        true
    }

    /// Asks once, under the ample limit or the small one.
    fn ask(&self, server: SocketAddr, limit: Limit, key: &str) -> io::Result<Answer>;

    /// Asks very often, under the ample limit. Fails if anything but answers came back.
    fn load(&self, server: SocketAddr, amount: Amount, folder: &Path) -> io::Result<Pace>;
}

/// A key of the load, by its number: as redis-benchmark writes them.
pub fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Sends something on a connection of its own.
fn send(server: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

/// Sends something, and reads all that comes until the server ends the connection.
fn exchange(server: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    send(server, bytes)?.read_to_end(&mut answer)?;
    Ok(answer)
}

/// What a program prints, if it ends well.
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

/// What does not answer the question.
fn surprise(answer: &impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("not an answer: {answer:?}"))
}
