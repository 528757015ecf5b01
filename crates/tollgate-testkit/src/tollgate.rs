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
    /// Where Envoy's rate limit service listens. Off unless the configuration says
    /// `listen: {rls: "127.0.0.1:0"}`, or an argument does: its port is fixed otherwise.
    pub rls: Option<SocketAddr>,
    /// Where the Redis protocol is spoken: off in the same way.
    pub resp: Option<SocketAddr>,
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
        let off = unasked(config, arguments);
        let (config, ready) = (files.write("tollgate.yaml", config), files.path().join("ready.json"));
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).arg("--ready-file").arg(&ready);
        command.args(["--set", "listen.gateway=127.0.0.1:0", "--set", "listen.api=127.0.0.1:0"]);
        command.args(off).args(arguments).stderr(Stdio::from(log(files.path())));
        let mut program = Program::start(command);
        let addresses = |path: &Path| -> Option<serde_json::Value> {
            serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
        };
        program.wait_until("ready file", || addresses(&ready).is_some());
        let addresses = addresses(&ready).expect("it was there a moment ago");
        let known = |name: &str| -> Option<SocketAddr> { addresses[name].as_str()?.parse().ok() };
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (gateway, api) = (known("gateway").unwrap_or(nowhere), known("api").unwrap_or(nowhere));
        Self { program, gateway, api, rls: known("rls"), resp: known("resp"), files }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("stderr.log")).unwrap_or_default()
    }
}

/// What turns off the surfaces that nobody asked for.
fn unasked(config: &str, arguments: &[&str]) -> Vec<String> {
    let asked = |name: &str| {
        let ways = [format!("{name}: \"127.0.0.1:0\""), format!("{name}: 127.0.0.1:0")];
        let flags = [format!("listen.{name}="), format!("--listen-{name}")];
        ways.iter().any(|way| config.contains(way))
            || arguments.iter().any(|argument| flags.iter().any(|flag| argument.starts_with(flag)))
    };
    let names = ["rls", "resp"].into_iter().filter(|name| !asked(name));
    names.flat_map(|name| ["--set".to_owned(), format!("listen.{name}=off")]).collect()
}

fn log(folder: &Path) -> fs::File {
    fs::File::create(folder.join("stderr.log")).expect("there is room for a log")
}
