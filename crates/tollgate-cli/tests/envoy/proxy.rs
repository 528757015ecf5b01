//! A running Envoy between a client and a service of the test.

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
    /// Where clients come.
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

/// Whom Envoy stands between.
#[derive(Clone, Copy)]
pub(crate) struct Between {
    /// Tollgate's rate limit service.
    pub(crate) rls: SocketAddr,
    /// The service behind.
    pub(crate) app: SocketAddr,
}

/// The file that people copy.
pub(crate) fn copied() -> String {
    let text = fs::read_to_string(integration("envoy.yaml")).unwrap();
    // Where Tollgate answers, a busy machine is not to decide.
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

/// What the routes of Envoy can say besides.
pub(crate) fn features() -> String {
    include_str!("features.yaml").replace("0.25s", "30s")
}

impl Envoy {
    /// Starts one on a configuration, with the addresses of this test in it.
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

    /// Waits until the health check of Envoy says this of Tollgate: `healthy`, `/failed_active_hc`.
    pub(crate) fn wait_for_health(&mut self, health: &str) {
        let admin = self.admin;
        self.program.wait_until(health, || {
            let clusters = told(admin, "/clusters");
            let mut flags =
                clusters.lines().filter(|it| it.starts_with("tollgate::") && it.contains("::health_flags::"));
            flags.any(|it| it.ends_with(&format!("::health_flags::{health}")))
        });
    }

    /// A number that Envoy has counted: `cluster.app.ratelimit.ok`.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let stats = told(self.admin, "/stats");
        let line = stats.lines().find_map(|it| it.strip_prefix(&format!("{name}: ")));
        line.map_or(0, |it| it.parse().unwrap())
    }
}

/// What Envoy says of itself. By curl: it comes in chunks.
fn told(admin: SocketAddr, path: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail"]).arg(format!("http://{admin}{path}"));
    let told = ProgramOutput::of(curl);
    assert_eq!(told.code, Some(0), "{told:?}");
    told.stdout
}

/// An address that no other test of this machine uses, so that nobody takes its port meanwhile.
fn own_address() -> SocketAddr {
    static STARTED: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, high.max(1), low, STARTED.fetch_add(1, Ordering::Relaxed));
    SocketAddr::from((host, free_port()))
}

/// A configuration with another address where it has this port.
#[track_caller]
fn placed(text: &str, port: u16, address: SocketAddr) -> String {
    let old = format!("address: 127.0.0.1, port_value: {port}}}");
    replaced(text, &old, &format!("address: {}, port_value: {}}}", address.ip(), address.port()))
}

/// Exactly one place changed: a file that says it elsewhere is another file than this test knows.
#[track_caller]
pub(crate) fn replaced(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "`{old}` in:\n{text}");
    text.replace(old, new)
}
