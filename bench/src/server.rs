//! A program that serves for as long as a measurement takes.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::{Family, succeeds};
use crate::stopwatch;

/// Longer than any of them takes to start or to stop.
const DEADLINE: Duration = Duration::from_secs(30);

/// A program that serves. Asked to stop when dropped.
pub struct Server {
    name: String,
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a program on a core and waits until it answers.
    ///
    /// What it says goes into a log in `folder`.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// It and its children.
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
    /// Asks first: a process that is killed leaves its children behind.
    fn drop(&mut self) {
        let asked = succeeds("kill", &["-TERM", &self.child.id().to_string()]);
        let start = stopwatch::mark();
        while asked.is_ok() && start.elapsed() < DEADLINE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            stopwatch::pause(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same program, tied to a core if one is given.
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

/// A loopback address that nobody listened on a moment ago.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
