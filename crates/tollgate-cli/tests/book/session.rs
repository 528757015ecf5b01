//! A shell for the commands of a page: a directory with its files, and the server that it has started.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate_testkit::{Program, ProgramOutput, Scratch};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) struct Session {
    pub(crate) files: Scratch,
    docs: String,
    server: Option<Program>,
    gateway: SocketAddr,
    api: SocketAddr,
    resp: SocketAddr,
    /// The standard output of the last command.
    pub(crate) last_output: String,
}

impl Session {
    /// Creates a directory with the sample logs.
    pub(crate) fn new(root: &Path) -> Self {
        let files = Scratch::new();
        let docs = root.join("docs");
        fs::create_dir(files.path().join("bin")).unwrap();
        symlink(BINARY, files.path().join("bin/tollgate")).unwrap();
        // In a terminal, redis-cli numbers the elements of a reply.
        let redis_cli = files.path().join("bin/redis-cli");
        fs::write(&redis_cli, format!("#!/bin/sh\nPATH={SYSTEM_PATH} exec redis-cli --no-raw \"$@\"\n"))
            .unwrap();
        fs::set_permissions(&redis_cli, fs::Permissions::from_mode(0o755)).unwrap();
        for log in ["access.log", "shop.log.gz"] {
            fs::copy(docs.join("samples").join(log), files.path().join(log)).unwrap();
        }
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let docs = docs.display().to_string();
        let last_output = String::new();
        Self { files, docs, server: None, gateway: nowhere, api: nowhere, resp: nowhere, last_output }
    }

    /// Returns a command in the shell. Ports and absolute paths of the page are replaced.
    fn shell(&self, line: &str) -> Command {
        let line = line
            .replace("localhost:8080", &self.gateway.to_string())
            .replace("127.0.0.1:8080", &self.gateway.to_string())
            .replace("localhost:7070", &self.api.to_string())
            .replace("redis-cli -p 7379", &format!("redis-cli -p {}", self.resp.port()))
            .replace(" /etc/", " etc/");
        let mut command = Command::new("sh");
        let path = format!("{}/bin:{SYSTEM_PATH}", self.files.path().display());
        command.current_dir(self.files.path()).env_clear().env("PATH", path).env("DOCS", &self.docs);
        command.env("TOLLGATE_API", format!("http://{}", self.api)).args(["-c", &line]).stdin(Stdio::null());
        command
    }

    /// Runs a command. One that ends with `&` is a server: it is started in place of the last one.
    pub(crate) fn run(&mut self, line: &str) -> ProgramOutput {
        let Some(server) = line.strip_suffix('&') else {
            let output = ProgramOutput::of(self.shell(line));
            self.last_output.clone_from(&output.stdout);
            return output;
        };
        let ready = self.files.path().join("ready.json");
        let _ = fs::remove_file(&ready);
        let free = "--listen-gateway 127.0.0.1:0 --listen-api 127.0.0.1:0 --listen-rls off --listen-resp 127.0.0.1:0";
        let mut command = self.shell(&format!("exec {server} {free} --ready-file ready.json"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.server = None;
        let mut program = Program::start(command);
        let addresses = || serde_json::from_str::<Value>(&fs::read_to_string(&ready).ok()?).ok();
        program.wait_until("ready file", || addresses().is_some());
        let addresses = addresses().unwrap();
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        (self.gateway, self.api, self.resp) = (address("gateway"), address("api"), address("resp"));
        self.server = Some(program);
        ProgramOutput { code: Some(0), stdout: String::new(), stderr: String::new() }
    }
}
