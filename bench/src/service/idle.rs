//! Measures the memory of gRPC connections: idle ones, and ones with a call behind them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use std::{fmt, fs};

use serde::Serialize;

use super::contestant::Contestant;
use super::question::grpc::Grpc;
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

/// Resident memory of a server, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weight {
    /// Name of the contestant.
    pub subject: &'static str,
    /// Without connections.
    pub alone: f64,
    /// With connections that have exchanged settings only.
    pub idle: f64,
    /// With connections that have made one call each.
    pub called: f64,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, alone, idle, called } = self;
        let each = |with: f64| (with - alone) * f64::from(1 << 20) / f64::from(CONNECTIONS);
        write!(
            f,
            "{subject:<20} {alone:6.1} MiB alone, {idle:6.1} with {CONNECTIONS} idle connections ({:.0} bytes each), \
             {called:6.1} after a call on each ({:.0})",
            each(*idle),
            each(*called)
        )
    }
}

/// Measures a contestant over gRPC, restarted for each kind of connection.
pub fn weigh(track: &Track, contestant: &Contestant, call: Grpc) -> io::Result<Weight> {
    let (alone, idle) = hold(track, contestant, None)?;
    let (_, called) = hold(track, contestant, Some(call))?;
    Ok(Weight { subject: contestant.subject, alone, idle, called })
}

/// Returns the resident memory before and with all connections open.
fn hold(track: &Track, contestant: &Contestant, call: Option<Grpc>) -> io::Result<(f64, f64)> {
    let folder = track.folder.join(format!("idle_{}", contestant.subject));
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let command = contestant.command(&track.programs, address, &folder)?;
    let server = Server::start(&command, Some(track.cores.contestant), address, &folder, connects)?;
    let resident = || Ok::<_, io::Error>(mib(server.family()?.resident()?));
    let before = resident()?;
    let open: Vec<TcpStream> = (0..CONNECTIONS).map(|_| open(address, call)).collect::<io::Result<_>>()?;
    stopwatch::pause(SETTLE_TIME);
    let with = resident()?;
    drop(open);
    Ok((before, with))
}

/// Opens a connection, and makes a call if there is one.
fn open(server: SocketAddr, call: Option<Grpc>) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut sent = PREFACE.to_vec();
    write_frame(&mut sent, SETTINGS, 0, 0, &[]);
    if let Some(call) = call {
        write_frame(&mut sent, HEADERS, END_HEADERS, 1, &head(call.path()));
        write_frame(&mut sent, DATA, END_STREAM, 1, &call.load_body());
    }
    stream.write_all(&sent)?;
    // The settings of the server, and the end of the response.
    loop {
        let (kind, flags) = read_frame(&mut stream)?;
        let is_end =
            if call.is_some() { kind == HEADERS && flags & END_STREAM != 0 } else { kind == SETTINGS };
        if is_end {
            return Ok(stream);
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
