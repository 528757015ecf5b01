//! Requests over gRPC with h2load: 4 connections of 16 streams.
//!
//! h2load sends the same body with every request, so all requests have one key. It checks only the HTTP status, and
//! gRPC sends its own status in trailers: curl shows it for one request, and the key's count afterwards shows that no
//! request failed.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::message::{Message, Value, fields, number, unframed};
use super::{Amount, Answer, Limit, Question, key, said, surprise};
use crate::sample::Pace;

/// Number of connections.
pub const CONNECTIONS: usize = 4;
/// Streams per connection.
pub const STREAMS: usize = 16;

/// A request over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grpc {
    /// Envoy's `ShouldRateLimit`, with one descriptor of one entry.
    Descriptor,
    /// throttlecrab's `Throttle`, which carries its limit.
    Throttle,
}

/// Domain of the descriptors.
const DOMAIN: &str = "bench";
/// The entries that have a limit in [`policy`] and [`envoy_file`].
const AMPLE: &str = "user";
const SMALL: &str = "small";

/// Returns the limits of [`Grpc::Descriptor`] as a policy.
pub fn policy() -> String {
    let limit = |entry, limit: Limit| {
        format!("  - {{descriptor: [{entry}], domain: {DOMAIN}, bucket: {}}}\n", limit.bucket())
    };
    format!("limits:\n{}{}", limit(AMPLE, Limit::AMPLE_FOR_ALL), limit(SMALL, Limit::SMALL))
}

/// Returns the same limits as an envoyproxy/ratelimit file. Its windows are aligned to the calendar, so they are long
/// enough that none starts during a run.
pub fn envoy_file() -> String {
    let limit = |entry, limit: Limit| {
        let Limit { units, .. } = limit;
        format!("  - key: {entry}\n    rate_limit: {{unit: year, requests_per_unit: {units}}}\n")
    };
    format!(
        "domain: {DOMAIN}\ndescriptors:\n{}{}",
        limit(AMPLE, Limit::AMPLE_FOR_ALL),
        limit(SMALL, Limit::SMALL)
    )
}

impl Grpc {
    /// Returns the path of the method.
    pub fn path(self) -> &'static str {
        match self {
            Self::Descriptor => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::Throttle => "/throttlecrab.RateLimiter/Throttle",
        }
    }

    /// Returns the body of a call of the load.
    pub fn load_body(self) -> Vec<u8> {
        self.body(&key(0))
    }

    /// Returns the body of a call that charges this key.
    pub fn body(self, key: &str) -> Vec<u8> {
        self.message(self.ample(), key).framed()
    }

    fn message(self, limit: Limit, key: &str) -> Message {
        let Limit { units, seconds } = limit;
        let it = Message::default();
        match self {
            Self::Descriptor => {
                let word = if limit == Limit::SMALL { SMALL } else { AMPLE };
                let entry = Message::default().bytes(1, word).bytes(2, key);
                it.bytes(1, DOMAIN).bytes(2, Message::default().bytes(1, entry))
            }
            Self::Throttle => {
                it.bytes(1, key).number(2, units).number(3, units).number(4, seconds).number(5, 1)
            }
        }
    }

    fn read(self, message: &[u8]) -> Option<(bool, u64)> {
        let read = fields(message)?;
        match self {
            Self::Descriptor => {
                let status = read.iter().find_map(|(field, value)| match value {
                    Value::Bytes(bytes) if *field == 2 => Some(*bytes),
                    _ => None,
                });
                let admitted = match number(&read, 1) {
                    1 => true,
                    2 => false,
                    _ => return None,
                };
                Some((admitted, number(&fields(status?)?, 3)))
            }
            Self::Throttle => Some((number(&read, 1) == 1, number(&read, 3))),
        }
    }
}

impl Question for Grpc {
    fn ample(&self) -> Limit {
        Limit::AMPLE_FOR_ALL
    }

    fn keys(&self) -> u64 {
        1
    }

    fn ask(&self, server: SocketAddr, limit: Limit, key: &str) -> io::Result<Answer> {
        let folder = std::env::temp_dir();
        let unique = format!("tollgate-bench-{}", std::process::id());
        let [sent, received] = ["sent", "received"].map(|name| folder.join(format!("{unique}-{name}")));
        std::fs::write(&sent, self.message(limit, key).framed())?;
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "5"]);
        command.args(["--header", "content-type: application/grpc", "--header", "te: trailers"]);
        command.arg("--data-binary").arg(format!("@{}", sent.display()));
        command.args(["--dump-header", "-"]).arg("--output").arg(&received);
        command.arg(format!("http://{server}{}", self.path()));
        let head = said(command)?;
        let body = std::fs::read(&received)?;
        std::fs::remove_file(&sent)?;
        std::fs::remove_file(&received)?;
        let went_well = head.lines().any(|line| line.trim().eq_ignore_ascii_case("grpc-status: 0"));
        let read = unframed(&body).filter(|_| went_well).and_then(|message| self.read(message));
        let (admitted, left) = read.ok_or_else(|| surprise(&(&head, &body)))?;
        Ok(Answer { admitted, left, bytes: head.len() + body.len() })
    }

    fn load(&self, server: SocketAddr, amount: Amount, folder: &Path) -> io::Result<Pace> {
        let body = folder.join("body");
        std::fs::write(&body, self.load_body())?;
        let mut command = Command::new("h2load");
        command.args(["-t", "1", "-c", &CONNECTIONS.to_string(), "-m", &STREAMS.to_string()]);
        command.args(["-n", &amount.requests().to_string()]).arg("-d").arg(&body);
        command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
        command.arg(format!("http://{server}{}", self.path()));
        let said = said(command)?;
        parse(&said).ok_or_else(|| io::Error::other(format!("h2load said:\n{said}")))
    }
}

/// Returns the version of h2load.
pub fn version() -> io::Result<String> {
    let mut command = Command::new("h2load");
    command.arg("--version");
    Ok(said(command)?.trim().to_owned())
}

/// Parses the output. `None` unless all requests succeeded. h2load reports no percentiles.
fn parse(said: &str) -> Option<Pace> {
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start));
    let count = |of: &str, name: &str| -> Option<u64> {
        of.split(',').find_map(|part| part.trim().strip_suffix(name)?.trim().parse().ok())
    };
    let requests = line("requests:")?;
    let (total, succeeded) = (count(requests, "total")?, count(requests, "succeeded")?);
    let per_second = line("finished in ")?.split(',').nth(1)?.trim().strip_suffix("req/s")?;
    (total == succeeded && total > 0 && count(line("status codes:")?, "2xx") == Some(total)).then_some(())?;
    Some(Pace {
        requests: total,
        per_second: per_second.trim().parse().ok()?,
        p50_us: f64::NAN,
        p99_us: f64::NAN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "starting benchmark...
finished in 1.83s, 54526.43 req/s, 2.92MB/s
requests: 100000 total, 100000 started, 100000 done, 100000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 100000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 5.34MB (5604040) total, 197.65KB (202392) headers (space savings 98.01%), 1.14MB (1200000) data
";

    #[test]
    fn a_run_counts_only_if_all_requests_succeeded() {
        let pace = parse(SAID).unwrap();
        assert_eq!((pace.requests, pace.per_second.to_bits()), (100_000, 54_526.43_f64.to_bits()));
        assert!(parse(&SAID.replace("100000 succeeded, 0 failed", "99999 succeeded, 1 failed")).is_none());
        assert!(parse(&SAID.replace("100000 2xx, 0 3xx, 0 4xx", "0 2xx, 0 3xx, 100000 4xx")).is_none());
        assert!(parse("could not resolve host").is_none());
    }

    #[test]
    fn each_method_returns_verdict_and_remaining_units() {
        let status = Message::default().number(1, 1).number(3, 41);
        let admitted = Message::default().number(1, 1).bytes(2, status);
        assert_eq!(Grpc::Descriptor.read(admitted.as_ref()), Some((true, 41)));
        let refused = Message::default().number(1, 2).bytes(2, Message::default().number(1, 2));
        assert_eq!(Grpc::Descriptor.read(refused.as_ref()), Some((false, 0)));
        assert_eq!(Grpc::Descriptor.read(b""), None, "unknown is not an answer");
        let throttled = Message::default().number(1, 1).number(2, 9).number(3, 8);
        assert_eq!(Grpc::Throttle.read(throttled.as_ref()), Some((true, 8)));
    }
}
