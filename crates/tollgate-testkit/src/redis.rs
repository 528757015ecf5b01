//! A real `redis-server` of one test: started on a free port, killed at the end.
//!
//! Everything that a test does to it (kill, pause, restart, step its clock)
//! takes `&self`, so that a load in other threads can go on meanwhile.
//!
//! Not here: several servers that know each other (`redis_sentinel`,
//! `redis_cluster`), and the network between test and server (`netns`).

#![allow(clippy::panic, reason = "this is how a test fails")]

mod certificate;
mod clock;
mod port;

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::certificate::Certificate;
use self::clock::SteppedClock;
use self::port::quiet_port;
use crate::{Lan, Program, ProgramOutput, Scratch};

/// What no machine needs: ends only tests that have gone wrong.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running `redis-server` without persistence. Killed when dropped.
pub struct Redis {
    setup: Setup,
    port: u16,
    process: Mutex<Option<Process>>,
}

/// How it is started, each time.
struct Setup {
    arguments: Vec<String>,
    /// User and password that every client needs.
    login: Option<(Option<String>, String)>,
    certificate: Option<Certificate>,
    clock: Option<SteppedClock>,
    /// Runs a program where the server runs; empty unless that is a [`Lan`].
    inside: Vec<String>,
    /// Sends signals to the server where we may not; empty if we may.
    as_root: Vec<String>,
    host: Ipv4Addr,
    /// Where nodes of a cluster talk to each other; by itself it is 10,000 above the port, free or not.
    bus: Option<u16>,
    files: Scratch,
}

/// One run of the server.
struct Process {
    program: Program,
    /// As the server says it: `program` may be what started it.
    id: String,
}

impl Redis {
    /// Starts one on a free port of 127.0.0.1.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with more arguments: `&["--maxmemory", "2mb"]`.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::on_a_free_port(Setup::new(arguments))
    }

    /// The same, on a port that the caller chose; one that is taken fails the test.
    pub fn start_at(port: u16, arguments: &[&str]) -> Self {
        let setup = Setup::new(arguments);
        let process = setup.launch(port).unwrap_or_else(|log| panic!("redis-server on port {port}: {log}"));
        Self { setup, port, process: Mutex::new(Some(process)) }
    }

    /// One that answers nobody without this password; with a user, only that user may log in.
    ///
    /// Both are put into the URL as they are, so keep to letters and digits.
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

    /// One that speaks TLS only, with a certificate for `localhost` and 127.0.0.1 signed by [`Redis::ca`].
    pub fn start_with_tls() -> Self {
        let mut setup = Setup::new(&["--tls-auth-clients", "no"]);
        setup.certificate = Some(Certificate::new(&setup.files));
        Self::on_a_free_port(setup)
    }

    /// One whose wall clock [`Redis::step_clock`] moves.
    pub fn start_with_clock() -> Self {
        let mut setup = Setup::new(&[]);
        setup.clock = Some(SteppedClock::new(setup.files.path()));
        Self::on_a_free_port(setup)
    }

    /// One at the far end of a network that can be cut. The network must outlive it to be of use.
    pub fn start_in(lan: &Lan) -> Self {
        let mut setup = Setup::new(&["--protected-mode", "no"]);
        (setup.inside, setup.as_root, setup.host) = (lan.inside(), lan.as_root(), lan.address());
        Self::on_a_free_port(setup)
    }

    /// A sentinel with this configuration: the same program, in another role.
    pub(crate) fn start_sentinel(configuration: &str) -> Self {
        let setup = Setup::new(&["--sentinel"]);
        setup.files.write("redis.conf", configuration);
        Self::on_a_free_port(setup)
    }

    /// A node of a cluster that it has not joined yet.
    pub(crate) fn start_node(arguments: &[&str]) -> Self {
        let mut setup = Setup::new(&[&["--cluster-enabled", "yes"], arguments].concat());
        setup.bus = Some(0);
        Self::on_a_free_port(setup)
    }

    fn on_a_free_port(mut setup: Setup) -> Self {
        loop {
            let port = quiet_port();
            setup.bus = setup.bus.map(|_| quiet_port());
            match setup.launch(port) {
                Ok(process) => return Self { setup, port, process: Mutex::new(Some(process)) },
                // Somebody was faster.
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("redis-server ended at once: {log}"),
            }
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens: `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.setup.host, self.port)
    }

    /// What a client needs, as a URL: `redis://127.0.0.1:PORT`, with the password
    /// if there is one, and `rediss` if it speaks TLS.
    pub fn url(&self) -> String {
        let scheme = if self.setup.certificate.is_some() { "rediss" } else { "redis" };
        let login = self.setup.login.as_ref().map_or_else(String::new, |(user, password)| {
            format!("{}:{password}@", user.as_deref().unwrap_or_default())
        });
        format!("{scheme}://{login}{}", self.address())
    }

    /// The certificate authority that a client must trust; only of one started with TLS.
    pub fn ca(&self) -> PathBuf {
        self.setup.certificate.as_ref().expect("started by `start_with_tls`").ca.clone()
    }

    /// Runs one command with `redis-cli`; an error fails the test.
    pub fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command)
            .unwrap_or_else(|error| panic!("redis-cli {command:?} on {}: {error}", self.address()))
    }

    /// Runs one command with `redis-cli`; an error is what the server or `redis-cli` said.
    pub fn try_cli(&self, command: &[&str]) -> Result<String, String> {
        self.setup.cli(self.port, command)
    }

    /// The process id of the server.
    pub fn id(&self) -> u32 {
        self.with_process(|process| process.id.parse().expect("it is a number"))
    }

    /// Whether it was neither killed nor paused.
    pub fn is_running(&self) -> bool {
        self.locked().as_ref().is_some_and(|process| state(&process.id) != Some('T'))
    }

    /// Kills it as `kill -9` does, and waits for its end. Killing it again does nothing.
    pub fn kill(&self) {
        if let Some(process) = self.locked().take() {
            self.setup.end(process);
        }
    }

    /// Starts it again on the same port with the same arguments, killing it first if it runs.
    /// What `CONFIG REWRITE` left in its folder is read again.
    pub fn restart(&self) {
        self.kill();
        let process = self.setup.launch(self.port);
        let process = process.unwrap_or_else(|log| panic!("redis-server on port {}: {log}", self.port));
        *self.locked() = Some(process);
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.with_process(|process| {
            self.setup.signal(process, "STOP");
            // The signal is taken a moment later.
            wait_until("paused server", || state(&process.id) == Some('T'));
        });
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.with_process(|process| {
            self.setup.signal(process, "CONT");
            wait_until("server that goes on", || state(&process.id) != Some('T'));
        });
    }

    /// Moves its wall clock forward or back, at once; only of one started by `start_with_clock`.
    pub fn step_clock(&self, seconds: i64) {
        self.setup.clock.as_ref().expect("started by `start_with_clock`").step(seconds);
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.setup.log()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.setup.files.path()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        // A test that failed while it held the lock still has a server to kill.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_process<R>(&self, act: impl FnOnce(&Process) -> R) -> R {
        act(self.locked().as_ref().expect("it was not killed"))
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

    /// A program that runs where the server runs.
    fn command(&self, program: &str) -> Command {
        let mut words = self.inside.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words);
        command
    }

    /// Starts it and waits until it answers; if it ends instead, the error is what it logged.
    fn launch(&self, port: u16) -> Result<Process, String> {
        let folder = self.files.path();
        let log = fs::File::create(folder.join("log")).expect("there is room for a log");
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
        command.stdout(log.try_clone().expect("it is open")).stderr(Stdio::from(log));
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

    /// The process id that answers at the port, if it is our server: another
    /// test's may have won the port a moment ago.
    fn answers(&self, port: u16) -> Option<String> {
        (self.cli(port, &["PING"]).ok()? == "PONG").then_some(())?;
        let info = self.cli(port, &["INFO", "server"]).ok()?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let ours = Path::new(field("config_file:")?).starts_with(self.files.path());
        ours.then(|| field("process_id:").map(ToString::to_string)).flatten()
    }

    fn cli(&self, port: u16, command: &[&str]) -> Result<String, String> {
        let mut cli = self.command("redis-cli");
        // `-e`: an error reply is a failure of the program as well.
        cli.args(["-e", "-h", &self.host.to_string(), "-p", &port.to_string()]);
        if let Some(files) = &self.certificate {
            cli.arg("--tls").arg("--cacert").arg(&files.ca);
        }
        if let Some((user, password)) = &self.login {
            cli.args(["--user", user.as_deref().unwrap_or("default"), "--pass", password]);
            cli.arg("--no-auth-warning");
        }
        cli.args(command);
        let finished = ProgramOutput::of(cli);
        let said = finished.stdout.trim().to_string();
        if finished.code == Some(0) { Ok(said) } else { Err(format!("{said}{}", finished.stderr.trim())) }
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
        // A stopped process dies of this one, too.
        self.signal(&process, "KILL");
        process.program.wait();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("log")).unwrap_or_default()
    }
}

/// The state letter of a process: `T` is stopped.
fn state(id: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it is in brackets and may hold anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Waits for what other processes do; far too long fails the test.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "no {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
