//! A server on its own thread, and raw clients.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::{Limiter, ManualClock, MemoryStore, Policy, SharedLimiter, Store, Timestamp};
use tollgate_net::{Drain, Drainer, Sockets, Tls};
use tollgate_resp::{Password, Resp, RespSettings};
use tollgate_testkit::ProgramOutput;

/// The time after which a test has failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server, drained on drop.
pub(crate) struct Server<S: Store = MemoryStore<ManualClock>> {
    pub(crate) address: SocketAddr,
    pub(crate) resp: Resp<S>,
    pub(crate) drainer: Option<Drainer>,
    worker: Option<JoinHandle<()>>,
}

impl<S: Store> Server<S> {
    pub(crate) fn start(limiter: Limiter<S>, settings: RespSettings, tls: Option<Tls>) -> Self {
        let resp = Resp::new(SharedLimiter::from(limiter), settings);
        let sockets = Sockets::bind("127.0.0.1:0", 1).unwrap();
        let address = sockets.address();
        let listener = sockets.into_listeners().into_iter().next().unwrap();
        let (drainer, drain) = Drain::new();
        let serving = resp.clone();
        let worker = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serving.serve(listener, tls, drain)).unwrap();
        });
        Self { address, resp, drainer: Some(drainer), worker: Some(worker) }
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Client(stream)
    }

    pub(crate) fn metrics(&self) -> String {
        let mut out = String::new();
        self.resp.metrics(&mut out);
        out
    }

    /// Drains the server and waits until all connections have ended.
    pub(crate) fn drain(&mut self) {
        if let Some(drainer) = self.drainer.take() {
            drainer.begin();
            drainer.close_idle();
        }
        if let Some(worker) = self.worker.take() {
            worker.join().unwrap();
        }
    }

    /// Returns the output of `redis-cli`.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.address.port().to_string()]).args(arguments);
        ProgramOutput::of(command).stdout
    }
}

impl<S: Store> Drop for Server<S> {
    fn drop(&mut self) {
        self.drain();
    }
}

/// Creates a limiter in memory with a manual clock.
pub(crate) fn in_memory(policy: &str) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    with_manual_clock(Policy::parse(policy).unwrap())
}

pub(crate) fn with_manual_clock(policy: Policy) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let store = MemoryStore::with_clock(10_000, clock.clone());
    (Limiter::with_store(policy, store), clock)
}

/// Starts a server in memory with a policy without limits.
pub(crate) fn plain() -> (Server, ManualClock) {
    let (limiter, clock) = in_memory("limits: []");
    (Server::start(limiter, RespSettings::default(), None), clock)
}

pub(crate) fn with_password(password: &str) -> Server {
    let settings = RespSettings { password: Password::new(password), ..RespSettings::default() };
    Server::start(in_memory("limits: []").0, settings, None)
}

/// A raw client.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends a command as an array of bulk strings.
    pub(crate) fn command(&mut self, words: &[&str]) {
        self.send(&encoded(words));
    }

    /// Checks that the next bytes are these.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) {
        let mut found = vec![0; expected.len()];
        let read = self.0.read_exact(&mut found);
        let found = String::from_utf8_lossy(&found);
        assert!(read.is_ok() && found == expected, "expected {expected:?}, found {found:?} ({read:?})");
    }

    /// Sends a line and checks the reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str, expected: &str) {
        self.send(format!("{line}\r\n").as_bytes());
        self.expect(expected);
    }

    /// Sends a line and checks the integers of the reply.
    #[track_caller]
    pub(crate) fn ask_numbers(&mut self, line: &str, numbers: &[i64]) {
        self.ask(line, &numbered(numbers));
    }

    /// Sends a line and checks the integers of the reply, which ends with the id of the decision.
    #[track_caller]
    pub(crate) fn ask_decision(&mut self, line: &str, numbers: [i64; 5]) {
        self.send(format!("{line}\r\n").as_bytes());
        self.expect("*6\r\n");
        for number in numbers {
            self.expect(&format!(":{number}\r\n"));
        }
        self.expect("$16\r\n");
        assert_eq!(self.line().len(), 16);
    }

    /// Reads one line of a reply, without its end.
    pub(crate) fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Reads until the server closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&rest)),
        }
        String::from_utf8_lossy(&rest).into_owned()
    }
}

pub(crate) fn encoded(words: &[&str]) -> Vec<u8> {
    let each = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), each.collect::<String>()).into_bytes()
}

pub(crate) fn numbered(numbers: &[i64]) -> String {
    let each = numbers.iter().map(|number| format!(":{number}\r\n"));
    format!("*{}\r\n{}", numbers.len(), each.collect::<String>())
}
