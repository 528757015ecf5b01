//! A load on many open connections, each of which asks again as soon as it is answered.
//!
//! Connections are opened before the measurement: accepting ten thousand would count as requests otherwise.
//! (redis-benchmark and wrk open theirs in each run, and redis-benchmark does not work with ten thousand.)

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::sample::Pace;
use crate::stopwatch;
use crate::zipf::Rng;

/// The keys of the load on the Redis protocol.
const KEYS: usize = 100_000;

/// The protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `CL.THROTTLE` for any of many keys, all admitted.
    Resp,
    /// Requests that the gateway refuses.
    Http,
}

impl Protocol {
    /// Returns the bytes of a request.
    fn request(self, key: usize) -> Vec<u8> {
        match self {
            Self::Resp => format!(
                "*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:{key:012}\r\n$6\r\n999999\r\n$7\r\n1000000\r\n$9\r\n100000000\r\n"
            )
            .into_bytes(),
            Self::Http => b"GET /api/v1/posts HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\n\r\n".to_vec(),
        }
    }

    /// Whether these bytes are a whole response. An unexpected one is an error.
    fn is_complete(self, bytes: &[u8]) -> io::Result<bool> {
        let expected: &[u8] = match self {
            Self::Resp => b"*5\r\n:0\r\n",
            Self::Http => b"HTTP/1.1 429 ",
        };
        let length = expected.len().min(bytes.len());
        if bytes[..length] != expected[..length] {
            return Err(io::Error::other(format!("not an answer: {}", String::from_utf8_lossy(bytes))));
        }
        Ok(match self {
            Self::Resp => bytes.split(|byte| *byte == b'\n').count() == 7,
            Self::Http => is_complete_response(&String::from_utf8_lossy(bytes)),
        })
    }
}

fn is_complete_response(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| body.len() >= length)
}

/// Open connections.
pub(super) struct Load {
    protocol: Protocol,
    runtime: Runtime,
    streams: Vec<TcpStream>,
}

impl Load {
    /// Opens this many connections, each of which is answered once.
    pub(super) fn open(protocol: Protocol, server: SocketAddr, connections: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let streams = runtime.block_on(async {
            let mut streams = Vec::with_capacity(connections);
            for _ in 0..connections {
                let mut stream = TcpStream::connect(server).await?;
                stream.set_nodelay(true)?;
                // One key: the store takes no memory for further ones.
                ask(protocol, &mut stream, 0, &mut Vec::new()).await?;
                streams.push(stream);
            }
            Ok::<_, io::Error>(streams)
        })?;
        Ok(Self { protocol, runtime, streams })
    }

    /// Sends requests on all connections at the same time for about so many seconds.
    #[allow(clippy::cast_precision_loss, reason = "requests are far below 2^52")]
    pub(super) fn run(&mut self, seconds: u64) -> io::Result<Pace> {
        let (protocol, start) = (self.protocol, stopwatch::mark());
        let requests = Cell::new(0_u64);
        let streams = std::mem::take(&mut self.streams);
        let local = LocalSet::new();
        self.streams = local.block_on(&self.runtime, async {
            let tasks = streams.into_iter().enumerate().map(|(number, mut stream)| {
                let mut rng = Rng::seeded(number as u64);
                async move {
                    let (mut buffer, mut count) = (Vec::with_capacity(1_024), 0_u64);
                    while start.elapsed().as_secs() < seconds {
                        ask(protocol, &mut stream, rng.below(KEYS), &mut buffer).await?;
                        count += 1;
                    }
                    Ok::<_, io::Error>((stream, count))
                }
            });
            let tasks: Vec<_> = tasks.map(tokio::task::spawn_local).collect();
            let mut streams = Vec::with_capacity(tasks.len());
            for task in tasks {
                let (stream, count) = task.await.map_err(io::Error::other)??;
                requests.set(requests.get() + count);
                streams.push(stream);
            }
            Ok::<_, io::Error>(streams)
        })?;
        let per_second = requests.get() as f64 / start.elapsed().as_secs_f64();
        Ok(Pace { requests: requests.get(), per_second, p50_us: 0.0, p99_us: 0.0 })
    }
}

/// Sends a request and reads its response.
async fn ask(protocol: Protocol, stream: &mut TcpStream, key: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(&protocol.request(key)).await?;
    buffer.clear();
    while !protocol.is_complete(buffer)? {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_responses_are_recognized() {
        let resp = b"*5\r\n:0\r\n:1000000\r\n:999999\r\n:-1\r\n:100\r\n";
        assert!(Protocol::Resp.is_complete(resp).unwrap());
        assert!(!Protocol::Resp.is_complete(&resp[..resp.len() - 1]).unwrap());
        assert!(Protocol::Resp.is_complete(b"*5\r\n:1\r\n").is_err(), "a refusal");
        let http = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}";
        assert!(Protocol::Http.is_complete(http).unwrap());
        assert!(!Protocol::Http.is_complete(&http[..http.len() - 1]).unwrap());
        assert!(Protocol::Http.is_complete(b"HTTP/1.1 200 OK\r\n").is_err());
    }
}
