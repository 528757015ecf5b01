//! A real PostgreSQL server for one test: a cluster of its own in a temporary folder, on a free port.
//!
//! All operations on it (kill, pause, restart) take `&self`, so that a load in other threads can
//! continue meanwhile. Nothing is synced to the disk, so a test must not depend on data that survives
//! a crash of the machine.
//!
//! PostgreSQL refuses to run as root. A test that runs as root starts it as the user `postgres`, which
//! Debian's package creates.

#![allow(clippy::panic, reason = "a panic fails the test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::certificate::Certificate;
use crate::free_port;
use crate::redis::DEADLINE;
use crate::{Program, ProgramOutput, Scratch, wait_until};

/// The superuser of every server.
const USER: &str = "tollgate";
/// The password of the superuser.
const PASSWORD: &str = "superuser-secret";

/// A running PostgreSQL server. Killed when dropped.
pub struct Postgres {
    setup: Setup,
    port: u16,
    program: Mutex<Option<Program>>,
}

/// The parameters of every start.
struct Setup {
    /// Settings of the server, such as `max_connections=50`.
    settings: Vec<String>,
    certificate: Option<Certificate>,
    /// The user and group that the server runs as, if the test runs as root.
    owner: Option<(u32, u32)>,
    files: Scratch,
}

impl Postgres {
    /// Starts a server on a free port of 127.0.0.1.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional settings: `&["max_connections=50"]`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::on_a_free_port(Setup::new(settings))
    }

    /// Starts a server that only accepts TLS, with a certificate for `localhost` and 127.0.0.1
    /// signed by [`Postgres::ca`].
    pub fn start_with_tls() -> Self {
        let mut setup = Setup::new(&[]);
        let certificate = Certificate::new(&setup.files);
        // The server reads its key only if no other user can.
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&certificate.key, private).expect("the key is ours");
        setup.own(&certificate.key);
        setup.own(&certificate.server);
        let file = |path: &Path| path.display().to_string();
        setup.settings.extend([
            "ssl=on".to_string(),
            format!("ssl_cert_file={}", file(&certificate.server)),
            format!("ssl_key_file={}", file(&certificate.key)),
        ]);
        let rules = "hostssl all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(setup.data().join("pg_hba.conf"), rules).expect("the folder can be written");
        setup.certificate = Some(certificate);
        Self::on_a_free_port(setup)
    }

    fn on_a_free_port(setup: Setup) -> Self {
        loop {
            let port = free_port();
            match setup.launch(port) {
                Ok(program) => return Self { setup, port, program: Mutex::new(Some(program)) },
                // Another process took the port.
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("postgres ended at once: {log}"),
            }
        }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its address: `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of the database `postgres` for its superuser.
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, "postgres")
    }

    /// Returns a URL for a user, a password and a database. All are put into it unescaped.
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@{}/{database}", self.address())
    }

    /// Returns the path of the certificate authority that a client must trust. Only for servers
    /// started with TLS.
    pub fn ca(&self) -> PathBuf {
        self.setup.certificate.as_ref().expect("started by `start_with_tls`").ca.clone()
    }

    /// Runs statements as the superuser. Returns the rows, a line each. An error fails the test.
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements} on {}: {error}", self.address()))
    }

    /// Runs statements as the superuser. The error is the message of the server or of `psql`.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        self.setup.sql(self.port, statements)
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        self.setup.log()
    }

    /// Ends it without a checkpoint, as a crash does, and waits for its end. Idempotent.
    pub fn kill(&self) {
        if let Some(mut program) = self.locked().take() {
            // An immediate shutdown. After SIGKILL, orphaned children would keep the shared memory for
            // a while, and a restart would fail. SIGCONT: a stopped server handles no signal.
            program.signal("QUIT");
            for id in family(program.id()) {
                signal(id, "CONT");
            }
            program.wait();
        }
    }

    /// Starts it again on the same port with the same data, killing it first if it runs.
    pub fn restart(&self) {
        self.kill();
        let program = self.setup.launch(self.port);
        let program = program.unwrap_or_else(|log| panic!("postgres on port {}: {log}", self.port));
        *self.locked() = Some(program);
    }

    /// Stops all of its processes: connections stay open and get no answers.
    pub fn pause(&self) {
        let id = self.locked().as_ref().expect("the server was not killed").id();
        // The first process starts the others, so it is stopped first.
        signal(id, "STOP");
        wait_until("paused server", || is_stopped(id));
        for child in family(id).into_iter().skip(1) {
            signal(child, "STOP");
        }
    }

    /// Resumes a paused server.
    pub fn resume(&self) {
        let id = self.locked().as_ref().expect("the server was not killed").id();
        for id in family(id) {
            signal(id, "CONT");
        }
        wait_until("server that goes on", || !is_stopped(id));
    }

    fn locked(&self) -> MutexGuard<'_, Option<Program>> {
        // A test that failed while it held the lock still has a server to kill.
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Setup {
    /// Creates a cluster whose users need a password.
    fn new(settings: &[&str]) -> Self {
        let files = Scratch::new();
        let setup = Self {
            settings: settings.iter().map(ToString::to_string).collect(),
            certificate: None,
            owner: owner_for_root(files.path()),
            files,
        };
        setup.own(setup.files.path());
        let password = setup.files.write("password", PASSWORD);
        setup.own(&password);
        let mut initdb = setup.command("initdb");
        initdb.arg("--pgdata").arg(setup.data()).arg("--pwfile").arg(&password);
        initdb.args(["--no-sync", "--no-instructions", "--auth=scram-sha-256", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--username", USER]);
        let finished = ProgramOutput::of(initdb);
        assert_eq!(finished.code, Some(0), "initdb: {}{}", finished.stdout, finished.stderr);
        setup
    }

    fn data(&self) -> PathBuf {
        self.files.path().join("data")
    }

    /// Makes the server the owner of a file.
    fn own(&self, path: &Path) {
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).expect("root may change the owner");
        }
    }

    /// Returns a command that runs as the user of the server.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find_program(program));
        command.current_dir(self.files.path());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Starts it and waits until it answers. If it ends instead, the error is its log.
    fn launch(&self, port: u16) -> Result<Program, String> {
        let log = fs::File::create(self.files.path().join("log")).expect("the log can be created");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", ""]);
        command.args(["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "autovacuum=off"]);
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        command.stdout(log.try_clone().expect("the log is open")).stderr(Stdio::from(log));
        let mut program = Program::start(command);
        let start = Instant::now();
        while program.is_running() {
            // The server of another test may have taken the port.
            let is_ours = |folder: String| Path::new(&folder).starts_with(self.files.path());
            if self.sql(port, "SHOW data_directory").is_ok_and(is_ours) {
                return Ok(program);
            }
            assert!(start.elapsed() < DEADLINE, "postgres does not answer: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        Err(self.log())
    }

    fn sql(&self, port: u16, statements: &str) -> Result<String, String> {
        let mut psql = Command::new(find_program("psql"));
        // Without the file of the user; unaligned rows without a head; an error ends it.
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
        psql.args([
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-U",
            USER,
            "-d",
            "postgres",
            "-c",
            statements,
        ]);
        psql.env("PGPASSWORD", PASSWORD).env("PGCONNECT_TIMEOUT", "10").current_dir(self.files.path());
        let finished = ProgramOutput::of(psql);
        let rows = finished.stdout.trim().to_string();
        if finished.code == Some(0) { Ok(rows) } else { Err(finished.stderr.trim().to_string()) }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("log")).unwrap_or_default()
    }
}

/// Returns the path of a program. Debian keeps the programs of each version of the server in a folder
/// that is not searched by default.
fn find_program(name: &str) -> PathBuf {
    let searched = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&searched).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("cannot find {name}. `make setup-test` installs it"))
}

/// Returns the user and group `postgres` if the files are those of root.
fn owner_for_root(files: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    let is_root = fs::metadata(files).expect("the folder exists").uid() == 0;
    let id = |option: &str| {
        let mut command = Command::new("id");
        command.args([option, "postgres"]);
        let finished = ProgramOutput::of(command);
        finished.stdout.trim().parse().unwrap_or_else(|_| panic!("id postgres: {}", finished.stderr))
    };
    is_root.then(|| (id("-u"), id("-g")))
}

/// Returns the id of a process, followed by those of its children.
fn family(id: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    [id].into_iter().chain(children.split_whitespace().filter_map(|child| child.parse().ok())).collect()
}

/// Sends a signal to a process that may have ended.
fn signal(id: u32, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{signal}"), &id.to_string()]).stderr(Stdio::null());
    let _ = kill.status();
}

fn is_stopped(id: u32) -> bool {
    crate::redis::state(&id.to_string()) == Some('T')
}
