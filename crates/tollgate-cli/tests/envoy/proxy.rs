//! A running Envoy between a client and an upstream of the test.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use tollgate_testkit::{Program, ProgramOutput, Scratch, free_port};

/// A running Envoy.
pub(crate) struct Envoy {
    pub(crate) program: Program,
    _files: Scratch,
    /// The address for clients.
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

/// The peers of Envoy.
#[derive(Clone, Copy)]
pub(crate) struct Between {
    /// Tollgate's rate limit service.
    pub(crate) rls: SocketAddr,
    /// The upstream.
    pub(crate) app: SocketAddr,
}

/// Returns the file that users copy.
pub(crate) fn copied() -> String {
    let text = fs::read_to_string(integration("envoy.yaml")).unwrap();
    // Long timeouts, so that a busy machine does not affect the result.
    let long = [
        (" timeout: 0.25s", " timeout: 30s"),
        ("connect_timeout: 0.25s", "connect_timeout: 30s"),
        ("- timeout: 1s", "- timeout: 30s"),
        ("interval: 5s, timeout: 1s", "interval: 5s, timeout: 30s"),
    ];
    long.iter().fold(text, |text, (short, long)| replaced(&text, short, long))
}

/// A file of `integrations/envoy`.
pub(crate) fn integration(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/envoy")).join(file)
}

/// Returns the configuration with further features of Envoy's routes.
pub(crate) fn features() -> String {
    include_str!("features.yaml").replace("0.25s", "30s")
}

impl Envoy {
    /// Starts Envoy on a configuration, with the addresses of this test.
    pub(crate) fn start(config: &str, between: Between) -> Self {
        let (files, address, admin) = (Scratch::new(), own_address(), own_address());
        let text = placed(config, 8000, address);
        let text = placed(&text, 9901, admin);
        let text = placed(&text, 8081, between.rls);
        let text = placed(&text, 3000, between.app);
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/envoy/envoy"));
        command.arg("--config-path").arg(files.write("envoy.yaml", &text));
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
        let log = fs::File::create(files.path().join("stderr.log")).unwrap();
        command.stdout(Stdio::null()).stderr(Stdio::from(log));
        let mut program = Program::start(command);
        program.wait_until("listening", || TcpStream::connect(address).is_ok());
        Self { program, _files: files, address, admin }
    }

    /// Waits until Envoy's health check reports this state of Tollgate: `healthy`, `/failed_active_hc`.
    pub(crate) fn wait_for_health(&mut self, health: &str) {
        let admin = self.admin;
        self.program.wait_until(health, || {
            let clusters = admin_page(admin, "/clusters");
            let mut flags =
                clusters.lines().filter(|it| it.starts_with("tollgate::") && it.contains("::health_flags::"));
            flags.any(|it| it.ends_with(&format!("::health_flags::{health}")))
        });
    }

    /// Returns a counter of Envoy: `cluster.app.ratelimit.ok`.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let stats = admin_page(self.admin, "/stats");
        let line = stats.lines().find_map(|it| it.strip_prefix(&format!("{name}: ")));
        line.map_or(0, |it| it.parse().unwrap())
    }
}

/// Returns a page of Envoy's admin API, with curl, because the response is chunked.
fn admin_page(admin: SocketAddr, path: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail"]).arg(format!("http://{admin}{path}"));
    let output = ProgramOutput::of(curl);
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout
}

/// Returns an address that no other test of this machine uses, so that its port stays free.
fn own_address() -> SocketAddr {
    static STARTED: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high.max(1), low, STARTED.fetch_add(1, Ordering::Relaxed));
    SocketAddr::from((host, free_port()))
}

/// Replaces the address with this port in a configuration.
#[track_caller]
fn placed(text: &str, port: u16, address: SocketAddr) -> String {
    let old = format!("address: 127.0.0.1, port_value: {port}}}");
    replaced(text, &old, &format!("address: {}, port_value: {}}}", address.ip(), address.port()))
}

/// Replaces exactly one occurrence; fails otherwise, because the file has changed.
#[track_caller]
pub(crate) fn replaced(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "`{old}` in:\n{text}");
    text.replace(old, new)
}
