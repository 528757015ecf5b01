//! Who proxies: Tollgate, nginx, Envoy, and what each is told to do.

pub mod envoy;
pub mod nginx;
pub mod tollgate;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::probe;
use crate::server::{Server, free_address};

pub use self::envoy::Envoy;
pub use self::nginx::Nginx;
pub use self::tollgate::{Tollgate, Watch};

/// What a contestant's limits are to do with every request of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing: the proxy alone.
    Off,
    /// Let it pass: limits that wrk cannot reach.
    Admit,
    /// Stop it: one limit that has nothing left.
    Refuse,
}

impl Duty {
    /// In the order in which each round goes through them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Admit, Self::Refuse];

    /// As it stands in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "limiting_off",
            Self::Admit => "admitted",
            Self::Refuse => "refused",
        }
    }

    /// What every answer of a run must be.
    pub fn status(self) -> u16 {
        match self {
            Self::Off | Self::Admit => 200,
            Self::Refuse => 429,
        }
    }
}

/// Where a contestant stands.
#[derive(Clone, Debug)]
pub struct Place {
    /// For its configuration, which stays there for whoever wants to read it.
    pub folder: PathBuf,
    /// Where it is to listen.
    pub listen: SocketAddr,
    /// Whom it is to ask.
    pub upstream: SocketAddr,
}

/// Somebody who proxies and limits.
pub trait Contestant {
    /// As it stands in the table.
    fn name(&self) -> &'static str;

    /// What it is put to.
    fn duties(&self) -> &'static [Duty] {
        &Duty::ALL
    }

    /// What it says of itself.
    fn version(&self) -> io::Result<String>;

    /// Its configuration and what that file is called.
    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String);

    /// How it is started on that file.
    fn command(&self, config: &Path, place: &Place) -> Command;
}

/// Starts a contestant on a core, before an upstream.
pub fn start(
    contestant: &dyn Contestant,
    duty: Duty,
    core: usize,
    upstream: SocketAddr,
    folder: &Path,
) -> io::Result<Server> {
    let folder = folder.join(format!("{}_{}", contestant.name(), duty.name()));
    fs::create_dir_all(&folder)?;
    let place = Place { folder, listen: free_address()?, upstream };
    let (name, text) = contestant.config(duty, &place);
    let config = place.folder.join(name);
    fs::write(&config, text)?;
    Server::start(
        &contestant.command(&config, &place),
        Some(core),
        place.listen,
        &place.folder,
        probe::answers,
    )
}

/// What a program prints when asked for its version: one line, wherever it prints it.
fn version(program: &Path, flag: &str) -> io::Result<String> {
    let output = Command::new(program).arg(flag).output();
    let output = output.map_err(|error| {
        let what = "it is not installed, or give its path: see `gateway --help`";
        io::Error::other(format!("cannot start {}: {error} ({what})", program.display()))
    })?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_owned())
}
