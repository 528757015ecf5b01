//! A real `redis-server` for one test: started on a free port, killed at the end.
//!
//! All operations on it (kill, pause, restart, step its clock) take `&self`, so that a load in
//! other threads can continue meanwhile.
//!
//! Groups of servers are in `redis_sentinel` and `redis_cluster`, the network between test and
//! server in `netns`.

#![allow(clippy::panic, reason = "a panic fails the test")]

mod clock;

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::clock::SteppedClock;
use crate::certificate::Certificate;
use crate::free_port;
use crate::{Lan, Program, ProgramOutput, Scratch};

/// The longest wait. Only a failed test reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running `redis-server` without persistence. Killed when dropped.
pub struct Redis {
    setup: Setup,
    port: u16,
    process: Mutex<Option<Process>>,
}

/// The parameters of every start.
struct Setup {
    arguments: Vec<String>,
    /// The user and password that every client needs.
    login: Option<(Option<String>, String)>,
    certificate: Option<Certificate>,
    clock: Option<SteppedClock>,
    /// The command prefix that runs a program where the server runs; empty unless that is a
    /// [`Lan`].
    inside: Vec<String>,
    /// The command prefix that sends signals to the server as root; empty if not needed.
    as_root: Vec<String>,
    host: Ipv4Addr,
    /// The port of the cluster bus. The default is 10,000 above the port, whether or not that is
    /// free.
    bus: Option<u16>,
    files: Scratch,
}

/// One run of the server.
struct Process {
    program: Program,
    /// The process id that the server reports: `program` may be a wrapper.
    id: String,
}

impl Redis {
    /// Starts a server on a free port of 127.0.0.1.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional arguments: `&["--maxmemory", "2mb"]`.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::on_a_free_port(Setup::new(arguments))
    }

    /// Starts a server that requires this password; with a user, only that user may log in.
    ///
    /// Both are put into the URL unescaped, so use only letters and digits.
    pub fn start_with_password(user: Option<&str>, password: &str) -> Self {
        let secret = format!(">{password}");
        let mut setup = Setup::new(&match user {
            None => vec!["--requirepass", password],
            Some(user) => {
                vec!["--user", user, "on", &secret, "~*", "&*", "+@all", "--user", "default", "off"]
            }
        });
        setup.login = Some((user.map(ToString::to_string), password.to_string()));
        Self::on_a_free_port(setup)
    }

    /// Starts a server that only accepts TLS, with a certificate for `localhost` and 127.0.0.1
    /// signed by [`Redis::ca`].
    pub fn start_with_tls() -> Self {
        let mut setup = Setup::new(&["--tls-auth-clients", "no"]);
        setup.certificate = Some(Certificate::new(&setup.files));
        Self::on_a_free_port(setup)
    }

    /// Starts a server that accepts TLS only from clients with a certificate of [`Redis::certificate`]'s
    /// authority.
    pub fn start_with_client_certificates() -> Self {
        let mut setup = Setup::new(&["--tls-auth-clients", "yes"]);
        setup.certificate = Some(Certificate::new(&setup.files));
        Self::on_a_free_port(setup)
    }

    /// Returns the certificate of a server with TLS.
    pub fn certificate(&self) -> &Certificate {
        self.setup.certificate.as_ref().expect("started with TLS")
    }

    /// Starts a server whose wall clock [`Redis::step_clock`] moves.
    pub fn start_with_clock() -> Self {
        let mut setup = Setup::new(&[]);
        setup.clock = Some(SteppedClock::new(setup.files.path()));
        Self::on_a_free_port(setup)
    }

    /// Starts a server at the far end of a network that can be cut. The network must outlive it.
    pub fn start_in(lan: &Lan) -> Self {
        let mut setup = Setup::new(&["--protected-mode", "no"]);
        (setup.inside, setup.as_root, setup.host) = (lan.inside(), lan.as_root(), lan.address());
        Self::on_a_free_port(setup)
    }

    /// Starts a sentinel with this configuration: the same program in another role.
    pub(crate) fn start_sentinel(configuration: &str) -> Self {
        let setup = Setup::new(&["--sentinel"]);
        setup.files.write("redis.conf", configuration);
        Self::on_a_free_port(setup)
    }

    /// Starts a cluster node that has not joined a cluster yet.
    pub(crate) fn start_node(arguments: &[&str]) -> Self {
        let mut setup = Setup::new(&[&["--cluster-enabled", "yes"], arguments].concat());
        setup.bus = Some(0);
        Self::on_a_free_port(setup)
    }

    fn on_a_free_port(mut setup: Setup) -> Self {
        loop {
            let port = free_port();
            setup.bus = setup.bus.map(|_| free_port());
            match setup.launch(port) {
                Ok(process) => return Self { setup, port, process: Mutex::new(Some(process)) },
                // Another process took the port.
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("redis-server ended at once: {log}"),
            }
        }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its address: `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.setup.host, self.port)
    }

    /// Returns its URL for clients: `redis://127.0.0.1:PORT`, with the password if there is one,
    /// and `rediss` for TLS.
    pub fn url(&self) -> String {
        let scheme = if self.setup.certificate.is_some() { "rediss" } else { "redis" };
        let login = self.setup.login.as_ref().map_or_else(String::new, |(user, password)| {
            format!("{}:{password}@", user.as_deref().unwrap_or_default())
        });
        format!("{scheme}://{login}{}", self.address())
    }

    /// Returns the path of the certificate authority that a client must trust. Only for servers
    /// started with TLS.
    pub fn ca(&self) -> PathBuf {
        self.certificate().ca.clone()
    }

    /// Runs one command with `redis-cli`. An error fails the test.
    pub fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command)
            .unwrap_or_else(|error| panic!("redis-cli {command:?} on {}: {error}", self.address()))
    }

    /// Runs one command with `redis-cli`. The error is the message of the server or of `redis-cli`.
    pub fn try_cli(&self, command: &[&str]) -> Result<String, String> {
        self.setup.cli(self.port, command)
    }

    /// Returns the process id of the server.
    pub fn id(&self) -> u32 {
        self.with_process(|process| process.id.parse().expect("the process id is a number"))
    }

    /// Returns whether it is neither killed nor paused.
    pub fn is_running(&self) -> bool {
        self.locked().as_ref().is_some_and(|process| state(&process.id) != Some('T'))
    }

    /// Kills it as `kill -9` does, and waits for its end. Idempotent.
    pub fn kill(&self) {
        if let Some(process) = self.locked().take() {
            self.setup.end(process);
        }
    }

    /// Starts it again on the same port with the same arguments, killing it first if it runs. It
    /// reads the configuration that `CONFIG REWRITE` left in its folder.
    pub fn restart(&self) {
        self.kill();
        let process = self.setup.launch(self.port);
        let process = process.unwrap_or_else(|log| panic!("redis-server on port {}: {log}", self.port));
        *self.locked() = Some(process);
    }

    /// Stops the process: connections stay open and get no answers.
    pub fn pause(&self) {
        self.with_process(|process| {
            self.setup.signal(process, "STOP");
            // The signal takes effect a moment later.
            wait_until("paused server", || state(&process.id) == Some('T'));
        });
    }

    /// Resumes a paused server.
    pub fn resume(&self) {
        self.with_process(|process| {
            self.setup.signal(process, "CONT");
            wait_until("server that goes on", || state(&process.id) != Some('T'));
        });
    }

    /// Moves its wall clock forward or back immediately. Only for servers started by
    /// `start_with_clock`.
    pub fn step_clock(&self, seconds: i64) {
        self.setup.clock.as_ref().expect("started by `start_with_clock`").step(seconds);
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        self.setup.log()
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.setup.files.path()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        // A test that failed while it held the lock still has a server to kill.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_process<R>(&self, act: impl FnOnce(&Process) -> R) -> R {
        act(self.locked().as_ref().expect("the server was not killed"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Setup {
    fn new(arguments: &[&str]) -> Self {
        let files = Scratch::new();
        files.write("redis.conf", "");
        Self {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            login: None,
            certificate: None,
            clock: None,
            inside: Vec::new(),
            as_root: Vec::new(),
            host: Ipv4Addr::LOCALHOST,
            bus: None,
            files,
        }
    }

    /// Returns a command that runs where the server runs.
    fn command(&self, program: &str) -> Command {
        let mut words = self.inside.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words);
        command
    }

    /// Starts it and waits until it answers. If it ends instead, the error is its log.
    fn launch(&self, port: u16) -> Result<Process, String> {
        let folder = self.files.path();
        let log = fs::File::create(folder.join("log")).expect("the log can be created");
        let mut command = self.command("redis-server");
        command.arg(folder.join("redis.conf")).arg("--dir").arg(folder);
        command.args(["--bind", &self.host.to_string(), "--loglevel", "warning"]);
        if !self.arguments.iter().any(|it| it == "--sentinel") {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        match &self.certificate {
            None => command.args(["--port", &port.to_string()]),
            Some(files) => command
                .args(["--port", "0", "--tls-port", &port.to_string()])
                .args([OsString::from("--tls-ca-cert-file"), files.ca.clone().into()])
                .args([OsString::from("--tls-cert-file"), files.server.clone().into()])
                .args([OsString::from("--tls-key-file"), files.key.clone().into()]),
        };
        command.args(self.bus.iter().flat_map(|bus| ["--cluster-port".to_string(), bus.to_string()]));
        command.args(&self.arguments).envs(self.clock.iter().flat_map(SteppedClock::environment));
        command.stdout(log.try_clone().expect("the log is open")).stderr(Stdio::from(log));
        let mut program = Program::start(command);

        let start = Instant::now();
        while program.is_running() {
            if let Some(id) = self.answers(port) {
                return Ok(Process { program, id });
            }
            assert!(start.elapsed() < DEADLINE, "redis-server does not answer: {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
        Err(self.log())
    }

    /// Returns the process id of the server that answers at the port, if it is ours: the server of
    /// another test may have taken the port.
    fn answers(&self, port: u16) -> Option<String> {
        (self.cli(port, &["PING"]).ok()? == "PONG").then_some(())?;
        let info = self.cli(port, &["INFO", "server"]).ok()?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let ours = Path::new(field("config_file:")?).starts_with(self.files.path());
        ours.then(|| field("process_id:").map(ToString::to_string)).flatten()
    }

    fn cli(&self, port: u16, command: &[&str]) -> Result<String, String> {
        let mut cli = self.command("redis-cli");
        // `-e`: an error reply also fails the program.
        cli.args(["-e", "-h", &self.host.to_string(), "-p", &port.to_string()]);
        if let Some(files) = &self.certificate {
            cli.arg("--tls").arg("--cacert").arg(&files.ca);
            cli.arg("--cert").arg(&files.server).arg("--key").arg(&files.key);
        }
        if let Some((user, password)) = &self.login {
            cli.args(["--user", user.as_deref().unwrap_or("default"), "--pass", password]);
            cli.arg("--no-auth-warning");
        }
        cli.args(command);
        let finished = ProgramOutput::of(cli);
        let reply = finished.stdout.trim().to_string();
        if finished.code == Some(0) { Ok(reply) } else { Err(format!("{reply}{}", finished.stderr.trim())) }
    }

    fn signal(&self, process: &Process, signal: &str) {
        if self.as_root.is_empty() {
            return process.program.signal(signal);
        }
        let mut kill = Command::new(&self.as_root[0]);
        kill.args(&self.as_root[1..]).args(["kill", &format!("-{signal}"), &process.id]);
        assert_eq!(ProgramOutput::of(kill).code, Some(0), "cannot send {signal} to redis-server");
    }

    fn end(&self, mut process: Process) {
        if !process.program.is_running() {
            return;
        }
        // This signal also ends a stopped process.
        self.signal(&process, "KILL");
        process.program.wait();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("log")).unwrap_or_default()
    }
}

/// Returns the state letter of a process: `T` is stopped.
pub(crate) fn state(id: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The preceding name is in parentheses and may contain any character.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Waits for other processes. Reaching the deadline fails the test.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "no {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
