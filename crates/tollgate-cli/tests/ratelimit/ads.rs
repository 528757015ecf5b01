//! A configuration server on grpcio (`tools/ads.py`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::Certificate;

/// Far above the needs of any machine: it only ends tests that have failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A running configuration server.
pub(crate) struct Ads {
    child: Child,
    commands: ChildStdin,
    requests: Receiver<Value>,
    pub(crate) port: u16,
}

/// Returns a Python with the packages of `tools/requirements.txt`.
pub(crate) fn python(script: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../target/tools/bin/python");
    assert!(python.exists(), "target/tools is missing: run `make test`, which installs it");
    let mut command = Command::new(python);
    command.arg(root.join("tests/tools").join(script));
    command
}

impl Ads {
    /// Starts the server; with a certificate, it requires one of its clients too.
    pub(crate) fn start(certificate: Option<&Certificate>) -> Self {
        let mut command = python("ads.py");
        if let Some(it) = certificate {
            command.arg("--cert").arg(&it.server).arg("--key").arg(&it.key).arg("--client-ca").arg(&it.ca);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, requests) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                let _ended = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let mut ads = Self { child, commands, requests, port: 0 };
        ads.port = ads.request()["port"].as_u64().and_then(|it| u16::try_from(it).ok()).unwrap();
        ads
    }

    /// Returns the next request of a client.
    #[track_caller]
    pub(crate) fn request(&self) -> Value {
        self.requests.recv_timeout(TEST_TIMEOUT).unwrap()
    }

    /// Sends the whole configuration, and returns the answer of the client.
    #[track_caller]
    pub(crate) fn push(&mut self, version: &str, files: &[&Path]) -> Value {
        self.command(&json!({"push": files, "version": version}));
        self.request()
    }

    /// Ends all streams.
    pub(crate) fn close(&mut self) {
        self.command(&json!({"close": true}));
    }

    fn command(&mut self, command: &Value) {
        writeln!(self.commands, "{command}").unwrap();
        self.commands.flush().unwrap();
    }
}

impl Drop for Ads {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
