//! `tollgate serve` under load, with more and more connections that all ask without a pause.
//!
//! The server has one core and one thread; the load generator has the other core. The number is the CPU time of the
//! server per request, so it does not depend on how fast the generator is.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io, net};

use super::load::{Load, Protocol};
use super::{CONNECTIONS_RESP, Case};
use crate::cores::Cores;
use crate::gateway::probe;
use crate::sample::{Pace, Sample};
use crate::server::{Server, free_address};
use crate::stopwatch;

/// Requests of the load on the gateway: all of them are refused.
const POLICY: &str = "gateway: {upstream: \"http://127.0.0.1:9\"}
limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, bucket: 1/day}
";

/// Seconds of load before the measurement.
const WARM_UP_SECONDS: u64 = 1;
/// Time limit until the gateway refuses.
const DEADLINE: Duration = Duration::from_secs(10);

/// Settings that all measurements of a run share.
pub struct Track {
    /// Core assignment.
    pub cores: Cores,
    /// `tollgate`.
    pub program: PathBuf,
    /// Folder of configurations and logs.
    pub folder: PathBuf,
    /// Seconds of load.
    pub seconds: u64,
}

impl Track {
    /// Loads a server on this many connections, repeats disturbed measurements, and returns the least disturbed one.
    pub fn measure(&self, case: &Case, connections: usize) -> io::Result<Sample> {
        Sample::calmest(|| {
            let (server, protocol) = self.serve(case)?;
            let mut load = Load::open(protocol, server.address(), connections)?;
            load.run(WARM_UP_SECONDS)?;
            let (sample, _) =
                Sample::take(&server.family()?, || load.run(self.seconds), |pace: &Pace| *pace)?;
            Ok(sample)
        })
    }

    /// Starts the surface of a case.
    fn serve(&self, case: &Case) -> io::Result<(Server, Protocol)> {
        if *case == CONNECTIONS_RESP {
            Ok((self.start("resp", connects)?, Protocol::Resp))
        } else {
            Ok((self.start("gateway", answers)?, Protocol::Http))
        }
    }

    /// Returns the bytes of resident memory that a connection adds which has asked once, and is idle.
    #[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
    pub fn idle_bytes(&self, case: &Case, connections: usize) -> io::Result<f64> {
        let (server, protocol) = self.serve(case)?;
        // The first connection also takes what all of them share.
        let first = Load::open(protocol, server.address(), 1)?;
        let before = server.family()?.resident()?;
        let open = Load::open(protocol, server.address(), connections)?;
        // Idle connections release their buffers after a second.
        let start = stopwatch::mark();
        while start.elapsed() < Duration::from_secs(3) {
            stopwatch::pause(Duration::from_millis(100));
        }
        let after = server.family()?.resident()?;
        let sockets = server.family()?.sockets()?;
        if sockets <= connections {
            return Err(io::Error::other(format!("the server has {sockets} sockets, not {connections}")));
        }
        drop((first, open));
        Ok(after.saturating_sub(before) as f64 / connections as f64)
    }

    fn start(&self, surface: &str, ready: fn(net::SocketAddr) -> io::Result<()>) -> io::Result<Server> {
        let folder = self.folder.join(surface);
        fs::create_dir_all(&folder)?;
        let address = free_address()?;
        let command = serve(&self.program, surface, address, &folder)?;
        Server::start(&command, Some(self.cores.contestant), address, &folder, ready)
    }
}

/// File descriptors of a server and of the load that are not connections.
const OTHER_DESCRIPTORS: usize = 100;

/// Returns the reason why the server of a case cannot have this many connections and one more: the RESP listener takes at
/// most a quarter of the file descriptors, and the gateway is not limited by their number.
pub fn exceeds_descriptors(case: &Case, connections: usize) -> io::Result<Option<String>> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let all = descriptors(&limits).unwrap_or(usize::MAX);
    let most = if *case == CONNECTIONS_RESP { all / 4 } else { all.saturating_sub(OTHER_DESCRIPTORS) };
    Ok((most <= connections).then(|| format!("{all} file descriptors allow {most} connections")))
}

/// Returns the hard limit of open files; `None` if there is none.
fn descriptors(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn serve(program: &Path, surface: &str, at: net::SocketAddr, folder: &Path) -> io::Result<Command> {
    let config = folder.join("tollgate.yaml");
    fs::write(&config, POLICY)?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(config).args(["--set", "gateway.workers=1"]);
    for each in ["gateway", "api", "rls", "resp"] {
        let address = if each == surface { at.to_string() } else { "off".to_owned() };
        command.arg("--set").arg(format!("listen.{each}={address}"));
    }
    Ok(command)
}

fn connects(address: net::SocketAddr) -> io::Result<()> {
    TcpStream::connect(address).map(drop)
}

/// Sends requests until one is refused: the quota of the policy is one.
fn answers(address: net::SocketAddr) -> io::Result<()> {
    let start = stopwatch::mark();
    while start.elapsed() < DEADLINE {
        if probe::ask(address)?.status == 429 {
            return Ok(());
        }
    }
    Err(io::Error::other("the gateway refuses no request"))
}

#[cfg(test)]
mod tests {
    use super::descriptors;

    #[test]
    fn the_hard_limit_of_open_files_is_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 20000                files\n";
        assert_eq!(descriptors(limits), Some(20_000));
        assert_eq!(descriptors("Max open files  unlimited  unlimited  files\n"), None);
    }
}
