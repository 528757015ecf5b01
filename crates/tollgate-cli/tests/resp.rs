//! The Redis protocol of the real binary, with popular clients.
//!
//! `resp/clients.rs` runs the same conversation with each client; `resp/hostile.rs` has hostile
//! clients. `make test` installs the clients: see `clients/README.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

mod wire;

mod clients;
mod hostile;
mod redis_cli;

use std::net::SocketAddr;

use tollgate_testkit::{Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// The limit for `TG.CHECK`.
const POLICY: &str = "limits:\n  - {name: per-user, by: user, bucket: 5/minute}\n";

const PASSWORD: &str = "open sesame";

/// A server that can be restarted at the same address.
struct Server {
    tollgate: Option<Tollgate>,
    address: SocketAddr,
    arguments: Vec<String>,
    /// The directory of the password file.
    _files: Scratch,
}

impl Server {
    fn open() -> Self {
        Self::start(Vec::new(), Scratch::new())
    }

    /// Starts a server with a password.
    fn locked() -> Self {
        let files = Scratch::new();
        let password = files.write("password", PASSWORD);
        Self::start(vec!["--set".into(), format!("resp.password_file={}", password.display())], files)
    }

    /// The first start chooses the address, so that no other test can take it before.
    fn start(arguments: Vec<String>, files: Scratch) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { tollgate: None, address: any, arguments, _files: files };
        server.restart();
        server.address = server.tollgate.as_ref().and_then(|it| it.resp).unwrap();
        server
    }

    /// Kills and restarts the server: all connections break, and the state is lost.
    fn restart(&mut self) {
        drop(self.tollgate.take());
        let listen = format!("listen.resp={}", self.address);
        let mut arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        arguments.extend(["--set", &listen]);
        self.tollgate = Some(Tollgate::start_with(BINARY, POLICY, &arguments));
    }

    fn process(&self) -> u32 {
        self.tollgate.as_ref().unwrap().program.id()
    }
}
