//! A running `tollgate serve`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Program, Scratch};

/// A running `tollgate serve`, on ports of its own.
pub struct Tollgate {
    /// The process.
    pub program: Program,
    /// Its files; the configuration is `tollgate.yaml`.
    pub files: Scratch,
    /// Where the gateway listens.
    pub gateway: SocketAddr,
    /// Where the API listens.
    pub api: SocketAddr,
}

impl Tollgate {
    /// Starts `binary` (`env!("CARGO_BIN_EXE_tollgate")`) on a configuration,
    /// with free ports, and waits until it listens.
    pub fn start(binary: &str, config: &str) -> Self {
        Self::start_with(binary, config, &[])
    }

    /// The same, with more arguments for `serve`.
    pub fn start_with(binary: &str, config: &str, arguments: &[&str]) -> Self {
        let files = Scratch::new();
        let (config, ready) = (files.write("tollgate.yaml", config), files.path().join("ready.json"));
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).arg("--ready-file").arg(&ready);
        command.args(["--set", "listen.gateway=127.0.0.1:0", "--set", "listen.api=127.0.0.1:0"]);
        command.args(arguments).stderr(Stdio::from(log(files.path())));
        let mut program = Program::start(command);
        let addresses = |path: &Path| -> Option<serde_json::Value> {
            serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
        };
        program.wait_until("ready file", || addresses(&ready).is_some());
        let addresses = addresses(&ready).expect("it was there a moment ago");
        let address = |name: &str| -> SocketAddr {
            let address = addresses[name].as_str().and_then(|it| it.parse().ok());
            address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
        };
        Self { program, gateway: address("gateway"), api: address("api"), files }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("stderr.log")).unwrap_or_default()
    }
}

fn log(folder: &Path) -> fs::File {
    fs::File::create(folder.join("stderr.log")).expect("there is room for a log")
}
