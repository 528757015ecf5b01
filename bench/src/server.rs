//! A server process that runs during a measurement.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::{Family, succeeds};
use crate::stopwatch;

/// Time limit for starting and stopping a server.
const DEADLINE: Duration = Duration::from_secs(30);

/// A running server. It is terminated on drop.
pub struct Server {
    name: String,
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a program on a core and waits until it responds.
    ///
    /// Its output goes to a log in `folder`.
    pub fn start(
        program: &Command,
        core: Option<usize>,
        address: SocketAddr,
        folder: &Path,
        answers: fn(SocketAddr) -> io::Result<()>,
    ) -> io::Result<Self> {
        let path = Path::new(program.get_program());
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let log = folder.join(format!("{name}.log"));
        let mut command = pinned(program, core);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child =
            command.spawn().map_err(|error| io::Error::other(format!("cannot start {name}: {error}")))?;
        let mut server = Self { name, child, address, log };
        server.wait_until_it(answers)?;
        Ok(server)
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process and its children.
    pub fn family(&self) -> io::Result<Family> {
        Family::of(self.child.id())
    }

    fn wait_until_it(&mut self, answers: fn(SocketAddr) -> io::Result<()>) -> io::Result<()> {
        let start = stopwatch::mark();
        while let Err(error) = answers(self.address) {
            let ended = self.child.try_wait()?;
            if ended.is_some() || start.elapsed() > DEADLINE {
                let how =
                    ended.map_or_else(|| format!("gives no answer: {error}"), |how| format!("ended, {how}"));
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(io::Error::other(format!("{} {how}\n{said}", self.name)));
            }
            stopwatch::pause(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    /// Sends SIGTERM first: a killed process leaves its children behind.
    fn drop(&mut self) {
        let terminated = succeeds("kill", &["-TERM", &self.child.id().to_string()]);
        let start = stopwatch::mark();
        while terminated.is_ok() && start.elapsed() < DEADLINE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            stopwatch::pause(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command, pinned to a core if one is given.
fn pinned(program: &Command, core: Option<usize>) -> Command {
    let mut command = match core {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(program.get_program());
            command
        }
        None => Command::new(program.get_program()),
    };
    command.args(program.get_args());
    command
}

/// Returns a free loopback address.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
