//! Listening sockets of a service manager, through the binary.
//!
//! The test is the service manager: it owns a listening socket and passes it as descriptor 3 (`sd_listen_fds(3)`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use tollgate_testkit::{Program, Scratch};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const POLICY: &str = "limits:\n  - {name: a, by: global, bucket: 1/hour}\n";
const LISTEN: &str = "listen={gateway: 127.0.0.1:1, api: off, rls: off, resp: off}";

/// Returns `tollgate serve` with a descriptor of this name. The shell has the descriptor as its output, and the process
/// id of the service.
fn serve(files: &Scratch, passed: OwnedFd, name: &str) -> Command {
    let script =
        "exec 3<&1 1>/dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=\"$0\"; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, name, BINARY, "serve", "--config", "policy.yaml", "--set", LISTEN]);
    command.current_dir(files.path()).env_clear().stdout(Stdio::from(passed));
    command
}

fn status(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.get(9..12).unwrap_or(&answer).to_owned()
}

fn request(socket: &TcpListener) -> TcpStream {
    let mut stream = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

#[test]
fn requests_wait_for_the_next_service_in_the_socket_of_the_service_manager() {
    let files = Scratch::new();
    files.write("policy.yaml", POLICY);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    for _service in 0..2 {
        let mut early = request(&socket);
        let mut command = serve(&files, socket.try_clone().unwrap().into(), "gateway");
        command.stderr(Stdio::null());
        let mut service = Program::start(command);
        assert_eq!(status(&mut early), "200");
        assert_eq!(status(&mut request(&socket)), "429");
        service.signal("TERM");
        assert_eq!(service.wait().code(), Some(0));
    }
}

#[test]
fn a_wrong_socket_is_an_error_that_names_the_setting_of_the_unit() {
    let files = Scratch::new();
    files.write("policy.yaml", POLICY);
    let socket = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let file = OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let cases = [
        (socket(), "tollgate.socket", "FileDescriptorName= of the socket unit is gateway, api, rls or resp"),
        (socket(), "api", "passes a socket for `listen.api`, which is off"),
        (file, "gateway", "does not listen for TCP"),
    ];
    for (passed, name, expected) in cases {
        let mut command = serve(&files, passed, name);
        command.stderr(fs::File::create(files.path().join("stderr")).unwrap());
        let code = Program::start(command).wait().code();
        let said = fs::read_to_string(files.path().join("stderr")).unwrap();
        assert!(code == Some(2) && said.contains(expected), "{name}: {code:?} {said}");
    }
}
