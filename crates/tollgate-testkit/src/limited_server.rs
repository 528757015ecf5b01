//! A server with limits that Tollgate did not write: `limited_server.py`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::Certificate;

/// A running server with limits, in Python's standard library. It ends with the test.
pub struct LimitedServer {
    child: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl LimitedServer {
    /// Starts a server in the dialect of `github`, `discord` or `openai`.
    pub fn start(dialect: &str) -> Self {
        Self::run(Command::new("python3").arg(SCRIPT).arg(dialect))
    }

    /// Starts it with TLS.
    pub fn start_tls(dialect: &str, certificate: &Certificate) -> Self {
        let mut command = Command::new("python3");
        Self::run(command.arg(SCRIPT).arg(dialect).arg(&certificate.server).arg(&certificate.key))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let mut line = String::new();
        let output = child.stdout.take().expect("the output is a pipe");
        BufReader::new(output).read_line(&mut line).expect("the server prints its port");
        Self { child, port: line.trim().parse().expect("the server prints its port") }
    }
}

impl Drop for LimitedServer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/limited_server.py");
