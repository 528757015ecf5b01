//! A running `tollgate serve`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Program, Scratch};

/// The file of its standard error, beside the configuration.
const LOG: &str = "stderr.log";

/// A running `tollgate serve` on free ports.
pub struct Tollgate {
    /// The process.
    pub program: Program,
    /// Its files; the configuration is `tollgate.yaml`.
    pub files: Scratch,
    /// The address of the gateway.
    pub gateway: SocketAddr,
    /// The address of the API.
    pub api: SocketAddr,
    /// The address of Envoy's rate limit service.
    ///
    /// It is off unless the configuration has `listen: {rls: "127.0.0.1:0"}` or an argument sets
    /// it, because its default port is fixed.
    pub rls: Option<SocketAddr>,
    /// The address of the Redis protocol, off by the same rule.
    pub resp: Option<SocketAddr>,
}

impl Tollgate {
    /// Starts `binary` (`env!("CARGO_BIN_EXE_tollgate")`) on a configuration, with free ports, and
    /// waits until it listens.
    pub fn start(binary: &str, config: &str) -> Self {
        Self::start_with(binary, config, &[])
    }

    /// Starts it with additional arguments for `serve`.
    pub fn start_with(binary: &str, config: &str, arguments: &[&str]) -> Self {
        let files = Scratch::new();
        let off = disabled_surfaces(config, arguments);
        let (config, ready) = (files.write("tollgate.yaml", config), files.path().join("ready.json"));
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).arg("--ready-file").arg(&ready);
        command.args(["--set", "listen.gateway=127.0.0.1:0", "--set", "listen.api=127.0.0.1:0"]);
        command.args(off).args(arguments).stderr(Stdio::from(log(files.path())));
        let mut program = Program::start(command).with_log(files.path().join(LOG));
        let addresses = |path: &Path| -> Option<serde_json::Value> {
            serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
        };
        program.wait_until("ready file", || addresses(&ready).is_some());
        let addresses = addresses(&ready).expect("the ready line has the addresses");
        let known = |name: &str| -> Option<SocketAddr> { addresses[name].as_str()?.parse().ok() };
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (gateway, api) = (known("gateway").unwrap_or(nowhere), known("api").unwrap_or(nowhere));
        Self { program, gateway, api, rls: known("rls"), resp: known("resp"), files }
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.files.path().join(LOG)).unwrap_or_default()
    }
}

/// Returns the arguments that turn off surfaces which the test does not configure.
fn disabled_surfaces(config: &str, arguments: &[&str]) -> Vec<String> {
    let is_set = |name: &str| {
        let ways = [format!("{name}: \"127.0.0.1:0\""), format!("{name}: 127.0.0.1:0")];
        let flags = [format!("listen.{name}="), format!("--listen-{name}")];
        ways.iter().any(|way| config.contains(way))
            || arguments.iter().any(|argument| flags.iter().any(|flag| argument.starts_with(flag)))
    };
    let names = ["rls", "resp"].into_iter().filter(|name| !is_set(name));
    names.flat_map(|name| ["--set".to_owned(), format!("listen.{name}=off")]).collect()
}

fn log(folder: &Path) -> fs::File {
    fs::File::create(folder.join(LOG)).expect("the log can be created")
}
