//! `tollgate top`, and the confirmations of `tollgate mode`, in a pseudoterminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::canned::{CannedServer, ok};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use tollgate::{Clock, Span, SystemClock};
use tollgate_testkit::ProgramOutput;

/// A timeout that only failing tests reach.
const DEADLINE: Span = Span::from_secs(60);

/// A program in a pseudoterminal.
struct Session {
    child: Child,
    /// The controlling side, which receives the typed input.
    keyboard: File,
    output: Receiver<Vec<u8>>,
    seen: String,
    /// The terminal side, kept open to inspect it after the end.
    terminal: File,
    before: Termios,
}

impl Session {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        resize(&ours, 80, 24);
        let name = std::ffi::OsString::from_vec(ptsname(&ours, Vec::new()).unwrap().into_bytes());
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let theirs = || terminal.try_clone().unwrap();
        // A new session, so that signals of this terminal reach the program.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tollgate")]).args(arguments);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied());
        let child = command.stdin(theirs()).stdout(theirs()).stderr(theirs()).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start setsid: {error}"));
        let keyboard = File::from(ours);
        let mut screen = keyboard.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut block = [0; 8192];
            while let Ok(count @ 1..) = screen.read(&mut block) {
                if sender.send(block[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, output, seen: String::new(), terminal, before }
    }

    /// Waits until the screen shows the text, from here on.
    fn until(&mut self, text: &str) {
        let clock = SystemClock::new();
        let end = clock.now() + DEADLINE;
        while !self.seen.contains(text) {
            let left = Duration::from_micros(end.since(clock.now()).as_micros());
            let Ok(block) = self.output.recv_timeout(left) else { panic!("no {text:?} in {:?}", self.seen) };
            self.seen.push_str(&String::from_utf8_lossy(&block));
        }
        let end = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..end);
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, checks that the terminal is restored, and returns the exit status.
    fn end(mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status.code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

const ID: &str = "00c0ffee00c0ffee";
const LEAVE: &str = "\u{1b}[?1049l";

fn server() -> CannedServer {
    let overview = json!({"now": "2026-11-15T12:00:00Z", "started_at": "2026-11-15T10:00:00Z", "version": "0.1.0",
        "observing": true, "mode": "enforce", "policy": {"version": 3, "limits": 1, "switched": 0, "reload_error": null},
        "store": {"kind": "memory", "state": "ok", "breaker": "closed", "nodes": 1, "keys": 5},
        "totals": {"allowed": 10, "limited": 3, "blocked": 0}, "series": {"allowed": [1], "refused": [1]},
        "latency_us": null, "alerts": []});
    let stats = json!({"window_s": 300, "limits": [{"name": "search", "mode": "enforce", "policy_mode": "enforce", "limited": 3}]});
    let decisions = json!({"next": 2, "decisions": [{"seq": 1, "id": ID, "at": "2026-11-15T12:00:00Z", "allowed": false,
        "fate": "refused", "method": "GET", "path": "/x\u{1b}[2Jy", "client": "::1", "limit": "search"}]});
    let explanation =
        json!({"id": ID, "allowed": false, "summary": "Arithmetically-refused", "request": {}, "limits": []});
    CannedServer::answering(vec![
        ("GET /v1/overview", ok(&overview)),
        ("GET /v1/stats", ok(&stats)),
        ("GET /v1/top", ok(&json!({"keys": [], "routes": []}))),
        ("GET /v1/decisions", ok(&decisions)),
        ("GET /v1/decisions/00c0ffee00c0ffee", ok(&explanation)),
        ("GET /v1/mode", ok(&json!({"mode": "enforce", "limits": []}))),
        ("GET /v1/limits", ok(&json!({"limits": []}))),
        (
            "PUT /v1/mode",
            ok(&json!({"mode": "off", "before": "enforce", "persisted": true, "warning": null})),
        ),
    ])
}

#[test]
fn keys_work_and_the_terminal_is_restored() {
    let server = server();
    let mut session = Session::start(&["top", "--api", server.url()], &[]);
    session.until("enforcing");
    session.until("search");
    let raw = tcgetattr(&session.terminal).unwrap();
    assert!(!raw.local_modes.contains(LocalModes::ICANON), "the terminal was taken");
    // Back to the last pane, and open its first row.
    session.type_in("\u{1b}[Z\r");
    session.until("Arithmetically-refused");
    session.type_in("qq");
    session.until(LEAVE);
    assert_eq!(session.end(), Some(0));
}

#[test]
fn a_signal_restores_the_terminal() {
    let server = server();
    for (signal, code) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129)] {
        let mut session = Session::start(&["top", "--api", server.url()], &[]);
        session.until("enforcing");
        let id = session.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        session.until(LEAVE);
        assert_eq!(session.end(), Some(code), "{signal}");
    }
}

#[test]
fn it_reconnects_to_a_server_and_handles_resizing() {
    let server = server();
    let mut session = Session::start(&["top", "--api", server.url()], &[("NO_COLOR", "1")]);
    session.until("enforcing");
    server.down(true);
    session.until("RECONNECTING");
    resize(&session.keyboard, 30, 5);
    session.until("small");
    resize(&session.keyboard, 100, 30);
    server.down(false);
    session.until("enforcing");
    session.type_in("\u{3}");
    session.until(LEAVE);
    assert_eq!(session.end(), Some(0));
}

#[test]
fn text_from_callers_does_not_move_the_cursor() {
    let server = server();
    let mut session = Session::start(&["top", "--api", server.url()], &[]);
    session.until("/x\\u{1b}[2Jy");
    session.type_in("q");
    session.until(LEAVE);
    assert_eq!(session.end(), Some(0));
}

#[test]
fn weakening_protection_needs_confirmation_on_a_terminal() {
    for (typed, requests, code) in [("n\n", 2, 1), ("\n", 2, 1), ("\u{4}", 2, 1), ("y\n", 3, 0)] {
        let server = server();
        let mut session = Session::start(&["mode", "off", "--all", "--api", server.url()], &[]);
        session.until("go on? [y/N] ");
        session.type_in(typed);
        session.until(if code == 0 { "everything: off now" } else { "nothing was changed" });
        assert_eq!(session.end(), Some(code), "{typed:?}");
        assert_eq!(server.requests().len(), requests, "{typed:?}");
    }
    let server = server();
    let mut session = Session::start(&["mode", "off", "--all", "--yes", "--api", server.url()], &[]);
    session.until("everything: off now");
    assert_eq!(session.end(), Some(0));
}

#[test]
fn without_a_terminal_it_prints_a_snapshot() {
    let server = server();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(arguments).args(["--api", server.url()]).env_clear().env("TERM", "xterm");
        ProgramOutput::of(command)
    };
    let finished = run(&["top"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(
        finished.stdout.starts_with(&format!("tollgate 0.1.0 at {}: enforcing\n", server.url())),
        "{}",
        finished.stdout
    );
    assert!(!finished.stdout.contains('\u{1b}'), "{}", finished.stdout);
    let snapshot: Value = serde_json::from_str(&run(&["top", "--json"]).stdout).unwrap();
    assert_eq!((&snapshot["overview"]["mode"], &snapshot["top"]["keys"]), (&json!("enforce"), &json!([])));

    server.down(true);
    let finished = run(&["top", "--once"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""));
    assert!(finished.stderr.contains("is this the API of a Tollgate?"), "{}", finished.stderr);
}

#[test]
fn a_wrong_address_is_reported_before_the_terminal_is_taken_over() {
    let url = format!("http://127.0.0.1:{}", tollgate_testkit::free_port());
    let mut session = Session::start(&["top", "--api", &url], &[]);
    session.until("nothing listens there");
    assert!(!session.seen.contains("1049"));
    assert_eq!(session.end(), Some(2));
}
