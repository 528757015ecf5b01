//! The proxies: Tollgate, nginx and Envoy, and their configurations.

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

/// The expected effect of the limits on every request of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// No limits.
    Off,
    /// Admit: limits that wrk cannot reach.
    Admit,
    /// Refuse: one limit is exhausted.
    Refuse,
    /// Shed: the node shedder refuses every request.
    ShedNode,
    /// Shed: an adaptive limit has no room.
    ShedAdaptive,
}

impl Duty {
    /// All duties, in the order of a round.
    pub const ALL: [Self; 5] = [Self::Off, Self::Admit, Self::Refuse, Self::ShedNode, Self::ShedAdaptive];

    /// The duties of every proxy.
    pub const COMMON: [Self; 3] = [Self::Off, Self::Admit, Self::Refuse];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "limiting_off",
            Self::Admit => "admitted",
            Self::Refuse => "refused",
            Self::ShedNode => "shed_node",
            Self::ShedAdaptive => "shed_adaptive",
        }
    }

    /// Returns the expected status of every response.
    pub fn status(self) -> u16 {
        match self {
            Self::Off | Self::Admit => 200,
            Self::Refuse => 429,
            Self::ShedNode | Self::ShedAdaptive => 503,
        }
    }

    /// Whether requests are shed. Requests that the upstream never answers cause the overload.
    pub fn is_shed(self) -> bool {
        matches!(self, Self::ShedNode | Self::ShedAdaptive)
    }

    /// Whether the upstream answers no request.
    pub fn is_refused(self) -> bool {
        self == Self::Refuse || self.is_shed()
    }
}

/// Addresses and folder of a contestant.
#[derive(Clone, Debug)]
pub struct Place {
    /// Folder of the configuration, which is kept for inspection.
    pub folder: PathBuf,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address of the upstream.
    pub upstream: SocketAddr,
}

/// A proxy with limits.
pub trait Contestant {
    /// Returns the name in the table.
    fn name(&self) -> &'static str;

    /// Returns the duties to measure.
    fn duties(&self) -> &'static [Duty] {
        &Duty::COMMON
    }

    /// Returns the version that the program prints.
    fn version(&self) -> io::Result<String>;

    /// Returns the name and the text of the configuration file.
    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String);

    /// Returns the command that starts the proxy with this file.
    fn command(&self, config: &Path, place: &Place) -> Command;
}

/// Starts a contestant on a core, in front of an upstream.
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
    let answers = if duty.is_shed() { probe::accepts } else { probe::answers };
    Server::start(&contestant.command(&config, &place), Some(core), place.listen, &place.folder, answers)
}

/// Returns the first line that a program prints for its version, on either stream.
pub fn version(program: &Path, flag: &str) -> io::Result<String> {
    let output = Command::new(program).arg(flag).output();
    let output = output.map_err(|error| {
        let what = "it is not installed, or give its path: see `gateway --help`";
        io::Error::other(format!("cannot start {}: {error} ({what})", program.display()))
    })?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_owned())
}
