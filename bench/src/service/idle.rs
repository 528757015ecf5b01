//! Measures the memory of connections: idle ones, ones with a request behind them, and gRPC ones with an open stream.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use std::{fmt, fs};

use serde::Serialize;

use super::contestant::{Contestant, GRPC, HTTP, RESP_1};
use super::question::grpc::Grpc;
use super::question::{Limit, Question};
use super::trial::{Track, connects};
use crate::server::{Server, free_address};
use crate::stopwatch;

/// Number of open connections. A listener of Tollgate accepts a quarter of the file descriptors.
pub const CONNECTIONS: u32 = 4_000;

/// Time limit of a response, and for a server to accept all connections.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time after the last call in which a server may release memory.
const SETTLE_TIME: Duration = Duration::from_millis(1_500);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a connection has done before its memory is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing; over gRPC, it has exchanged settings.
    Idle,
    /// One request, which was answered.
    Answered,
    /// The head of a call without its body. Only over gRPC.
    OpenStream,
}

/// Resident memory of a server, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weight {
    /// Name of the case.
    pub case: &'static str,
    /// Name of the contestant.
    pub subject: &'static str,
    /// Without connections.
    pub alone: f64,
    /// With connections that have sent no request.
    pub idle: f64,
    /// With connections that have made one request each.
    pub answered: f64,
    /// With connections that have one open stream each.
    pub open_stream: Option<f64>,
}

impl Weight {
    /// Returns the bytes of one connection of all.
    pub fn bytes_of_each(&self, with: f64) -> f64 {
        (with - self.alone) * f64::from(1 << 20) / f64::from(CONNECTIONS)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, subject, alone, idle, answered, open_stream } = self;
        write!(f, "{case:<8} {subject:<14} {alone:6.1} MiB alone; with {CONNECTIONS} connections: ")?;
        write!(f, "{idle:6.1} idle ({:.0} bytes each), ", self.bytes_of_each(*idle))?;
        write!(f, "{answered:6.1} after a request on each ({:.0})", self.bytes_of_each(*answered))?;
        if let Some(open) = open_stream {
            write!(f, ", {open:6.1} with an open stream on each ({:.0})", self.bytes_of_each(*open))?;
        }
        Ok(())
    }
}

/// Returns the contestants whose memory is measured.
pub fn contestants() -> Vec<Contestant> {
    let is_weighed = |it: &Contestant| {
        [RESP_1, HTTP, GRPC].contains(&it.case) && ["tollgate", "throttlecrab"].contains(&it.subject)
    };
    Contestant::all().into_iter().filter(is_weighed).collect()
}

/// Measures a contestant, restarted for each state of its connections.
pub fn weigh(track: &Track, contestant: &Contestant) -> io::Result<Weight> {
    let (alone, idle) = hold(track, contestant, State::Idle)?;
    let (_, answered) = hold(track, contestant, State::Answered)?;
    let open_stream = match contestant.case {
        GRPC => Some(hold(track, contestant, State::OpenStream)?.1),
        _ => None,
    };
    let Contestant { case, subject, .. } = *contestant;
    Ok(Weight { case, subject, alone, idle, answered, open_stream })
}

/// Returns the resident memory before and with all connections open.
fn hold(track: &Track, contestant: &Contestant, state: State) -> io::Result<(f64, f64)> {
    let folder = track.folder.join(format!("idle_{}_{}", contestant.case, contestant.subject));
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let command = contestant.command(&track.programs, address, &folder)?;
    let server = Server::start(&command, Some(track.cores.contestant), address, &folder, connects)?;
    let resident = || Ok::<_, io::Error>(mib(server.family()?.resident()?));
    let before = resident()?;
    let open: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| open(address, contestant, state)).collect::<io::Result<_>>()?;
    stopwatch::pause(SETTLE_TIME);
    let with = resident()?;
    drop(open);
    Ok((before, with))
}

/// Opens a connection.
fn open(server: SocketAddr, contestant: &Contestant, state: State) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    match (contestant.case, state) {
        (GRPC, _) => {
            let call = if contestant.subject == "tollgate" { Grpc::Descriptor } else { Grpc::Throttle };
            open_grpc(&mut stream, call, state)?;
        }
        (_, State::Idle | State::OpenStream) => {}
        (_, State::Answered) => {
            let question: &dyn Question = contestant.question.as_ref();
            let request = question.request(server, Limit::AMPLE, "idle");
            let request = request.ok_or_else(|| io::Error::other("this case has no request in bytes"))?;
            stream.write_all(&request)?;
            // Responses are short, and arrive in one piece.
            if stream.read(&mut [0; 4096])? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(stream)
}

/// Exchanges settings, and makes a call or starts one.
fn open_grpc(stream: &mut TcpStream, call: Grpc, state: State) -> io::Result<()> {
    let mut sent = PREFACE.to_vec();
    write_frame(&mut sent, SETTINGS, 0, 0, &[]);
    if state != State::Idle {
        write_frame(&mut sent, HEADERS, END_HEADERS, 1, &head(call.path()));
    }
    if state == State::Answered {
        write_frame(&mut sent, DATA, END_STREAM, 1, &call.load_body());
    }
    stream.write_all(&sent)?;
    // The settings of the server, or the end of the response.
    loop {
        let (kind, flags) = read_frame(stream)?;
        let is_end = match state {
            State::Answered => kind == HEADERS && flags & END_STREAM != 0,
            State::Idle | State::OpenStream => kind == SETTINGS,
        };
        if is_end {
            return Ok(());
        }
    }
}

fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Returns the header block of a call, without a table.
fn head(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap_or(u8::MAX);
    [&[0x83, 0x86, 0x04, length], path.as_bytes(), b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers"]
        .concat()
}

/// Reads a frame, and returns its kind and its flags.
fn read_frame(stream: &mut TcpStream) -> io::Result<(u8, u8)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, ..] = head;
    let length = u32::from_be_bytes([0, a, b, c]);
    io::copy(&mut stream.take(u64::from(length)), &mut io::sink())?;
    Ok((kind, flags))
}

#[allow(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
