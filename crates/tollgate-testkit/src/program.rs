//! A program that runs during a test.

#![allow(clippy::panic, reason = "a panic fails the test")]

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait. Only a failed test reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running program. Killed when dropped.
pub struct Program {
    name: String,
    child: Child,
    log: Option<PathBuf>,
}

impl Program {
    /// Starts a program. It inherits the output of the test unless the command redirects it.
    pub fn start(mut command: Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).spawn();
        let child =
            child.unwrap_or_else(|error| panic!("cannot start {name}: {error}. `make test` installs it"));
        Self { name, child, log: None }
    }

    /// Names the file that has its standard error, for the message of a failed test.
    #[must_use]
    pub fn with_log(mut self, log: PathBuf) -> Self {
        self.log = Some(log);
        self
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name: `TERM`, `HUP`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status();
        assert!(sent.is_ok_and(|it| it.success()), "cannot send {signal} to {}", self.name);
    }

    /// Returns whether it is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) if start.elapsed() < DEADLINE => thread::sleep(Duration::from_millis(5)),
                other => panic!("{} does not end: {other:?}", self.name),
            }
        }
    }

    /// Returns its standard error, if that was written to a log, or piped and the program has ended.
    pub fn stderr(&mut self) -> String {
        let mut text = self.log.as_ref().and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
        if let Some(mut pipe) = self.child.stderr.take() {
            let _ = pipe.read_to_string(&mut text);
        }
        text
    }

    /// Waits until `done` returns true, while the program runs.
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            if !self.is_running() {
                let stderr = self.stderr();
                panic!("{} ended before {what}: {stderr}", self.name);
            }
            assert!(start.elapsed() < DEADLINE, "{}: no {what}", self.name);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a server listens on the address.
pub fn wait_for_port(program: &mut Program, address: SocketAddr) {
    program.wait_until("listening", || TcpStream::connect(address).is_ok());
}
