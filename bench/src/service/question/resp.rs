//! Requests over RESP with redis-benchmark: 50 connections, each with several requests in flight.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use ::redis::Script;

use super::{Amount, Answer, KEYS, Limit, Question, said, send, surprise};
use crate::redis::bare::MINIMAL;
use crate::sample::Pace;

/// Number of connections, the default of redis-benchmark.
pub const CONNECTIONS: usize = 50;

/// The placeholder of redis-benchmark for a random key.
const ANY: &str = "key:__rand_int__";

/// A request over RESP.
pub struct Resp {
    /// The command.
    pub dialect: Dialect,
    /// Requests in flight per connection.
    pub pipeline: usize,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// redis-cell's `CL.THROTTLE`.
    Cell,
    /// throttlecrab's `THROTTLE`.
    Crab,
    /// `EVALSHA` of the shortest script that limits.
    Script,
    /// `INCR`, which limits nothing: the upper bound of Redis.
    Incr,
}

impl Dialect {
    fn words(self, limit: Limit, key: &str) -> Vec<String> {
        let Limit { units, seconds } = limit;
        // redis-cell counts one more than its largest burst.
        let (burst, count) = ((units - 1).to_string(), units.to_string());
        let period = seconds.to_string();
        let words = match self {
            Self::Cell => vec!["CL.THROTTLE", key, &*burst, &*count, &*period],
            Self::Crab => vec!["THROTTLE", key, &*count, &*count, &*period],
            Self::Script => {
                let (unit, full) =
                    ((seconds * 1_000_000 / units).to_string(), (seconds * 1_000_000).to_string());
                let hash = Script::new(MINIMAL).get_hash().to_owned();
                return ["EVALSHA".to_owned(), hash, "1".to_owned(), key.to_owned(), unit, full].into();
            }
            Self::Incr => vec!["INCR", key],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// Returns the verdict and the remaining units.
    fn read(self, limit: Limit, numbers: &[i64]) -> Option<(bool, u64)> {
        let left = match (self, numbers) {
            (Self::Cell | Self::Crab, [_, _, left, _, _]) => u64::try_from(*left).ok()?,
            (Self::Script, [_, ahead]) => {
                let full = limit.seconds * 1_000_000;
                full.saturating_sub(u64::try_from(*ahead).ok()?) / (full / limit.units)
            }
            (Self::Incr, [count]) => limit.units.checked_sub(u64::try_from(*count).ok()?)?,
            _ => return None,
        };
        let first = *numbers.first()?;
        let admitted = match self {
            Self::Cell => first == 0,
            Self::Crab | Self::Script => first == 1,
            Self::Incr => true,
        };
        Some((admitted, left))
    }
}

impl Question for Resp {
    fn prepare(&self, server: SocketAddr) -> io::Result<()> {
        if self.dialect == Dialect::Script {
            call(server, &["SCRIPT".to_owned(), "LOAD".to_owned(), MINIMAL.to_owned()])?;
        }
        Ok(())
    }

    fn refuses(&self) -> bool {
        self.dialect != Dialect::Incr
    }

    fn ask(&self, server: SocketAddr, limit: Limit, key: &str) -> io::Result<Answer> {
        let (numbers, bytes) = call(server, &self.dialect.words(limit, key))?;
        let read = self.dialect.read(limit, &numbers);
        let (admitted, left) = read.ok_or_else(|| surprise(&numbers))?;
        Ok(Answer { admitted, left, bytes })
    }

    fn request(&self, _server: SocketAddr, limit: Limit, key: &str) -> Option<Vec<u8>> {
        Some(written(&self.dialect.words(limit, key)))
    }

    fn load(&self, server: SocketAddr, amount: Amount, _folder: &Path) -> io::Result<Pace> {
        let load = Load { connections: CONNECTIONS, pipeline: self.pipeline, requests: amount.requests() };
        load.run(server, &self.dialect.words(self.ample(), ANY))
    }
}

/// A load of redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of connections.
    pub connections: usize,
    /// Requests in flight per connection.
    pub pipeline: usize,
    /// Number of requests.
    pub requests: u64,
}

impl Load {
    /// Sends a command again and again. redis-benchmark stops at an error of the server.
    pub fn run(self, server: SocketAddr, words: &[String]) -> io::Result<Pace> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", &server.ip().to_string(), "-p", &server.port().to_string(), "--csv"]);
        command.args(["-c", &self.connections.to_string(), "-P", &self.pipeline.to_string()]);
        command.args(["-r", &KEYS.to_string(), "-n", &self.requests.to_string()]).args(words);
        let said = said(command)?;
        parse(&said, self.requests).ok_or_else(|| io::Error::other(format!("redis-benchmark said:\n{said}")))
    }
}

/// Returns the version of redis-benchmark.
pub fn version() -> io::Result<String> {
    let mut command = Command::new("redis-benchmark");
    command.arg("--version");
    Ok(said(command)?.trim().to_owned())
}

/// Returns a command as an array of bulk strings.
fn written(words: &[String]) -> Vec<u8> {
    let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), bulks.collect::<String>()).into_bytes()
}

/// Sends a command, and returns the integers of the answer and its length.
fn call(server: SocketAddr, words: &[String]) -> io::Result<(Vec<i64>, usize)> {
    let mut reply = BufReader::new(send(server, &written(words))?);
    let (mut numbers, mut bytes) = (Vec::new(), 0);
    read(&mut reply, &mut numbers, &mut bytes)?;
    Ok((numbers, bytes))
}

fn read(reply: &mut impl BufRead, numbers: &mut Vec<i64>, bytes: &mut usize) -> io::Result<()> {
    let mut line = String::new();
    *bytes += reply.read_line(&mut line)?;
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or_else(|| surprise(&line))?;
    let number = rest.parse::<i64>();
    match (kind, number) {
        (":", Ok(number)) => numbers.push(number),
        ("*", Ok(count)) => {
            for _ in 0..count {
                read(reply, numbers, bytes)?;
            }
        }
        ("$", Ok(length)) => {
            let mut text = vec![0; usize::try_from(length).map_err(io::Error::other)? + 2];
            reply.read_exact(&mut text)?;
            *bytes += text.len();
        }
        ("+", _) => {}
        _ => return Err(surprise(&line)),
    }
    Ok(())
}

/// Parses the last line: `"INCR …","82644.63","0.31","0.08","0.303","0.40","0.50","1.2"`, in milliseconds.
fn parse(said: &str, requests: u64) -> Option<Pace> {
    let line = said.lines().rev().find(|line| line.starts_with('"'))?;
    let mut fields = line.rsplit("\",\"").map(|field| field.trim_matches('"').parse::<f64>());
    let mut next = |skip: usize| fields.nth(skip)?.ok();
    // From the end: maximum, p99, p95, p50, minimum, mean, requests per second.
    let (p99, p50, per_second) = (next(1)?, next(1)?, next(2)?);
    Some(Pace { requests, per_second, p50_us: p50 * 1e3, p99_us: p99 * 1e3 })
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Limit, Pace, parse, read};

    #[test]
    fn the_last_line_is_parsed_for_any_command() {
        let said = "WARNING: Could not fetch server CONFIG\n\
            \"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"CL.THROTTLE key:__rand_int__ 1 2 3\",\"39904.23\",\"1.210\",\"0.424\",\"1.199\",\"1.407\",\"1.887\",\"4.407\"\n";
        let expected = Pace { requests: 7, per_second: 39_904.23, p50_us: 1_199.0, p99_us: 1_887.0 };
        assert_eq!(parse(said, 7), Some(expected));
        assert_eq!(parse("Error from server: ERR unknown command\n", 7), None);
    }

    #[test]
    fn each_command_returns_verdict_and_remaining_units() {
        let limit = Limit::SMALL;
        assert_eq!(Dialect::Cell.read(limit, &[0, 2, 1, -1, 43_200]), Some((true, 1)));
        assert_eq!(Dialect::Cell.read(limit, &[1, 2, 0, 43_200, 86_400]), Some((false, 0)));
        assert_eq!(Dialect::Crab.read(limit, &[1, 2, 1, 43_200, 0]), Some((true, 1)));
        assert_eq!(Dialect::Crab.read(limit, &[0, 2, 0, 86_400, 43_200]), Some((false, 0)));
        assert_eq!(Dialect::Script.read(limit, &[1, 43_200_000_000]), Some((true, 1)));
        assert_eq!(Dialect::Script.read(limit, &[0, 86_400_000_000]), Some((false, 0)));
        assert_eq!(Dialect::Incr.read(limit, &[1]), Some((true, 1)));
        assert_eq!(Dialect::Cell.read(limit, &[0]), None);
    }

    #[test]
    fn an_error_is_not_an_answer() {
        let (mut numbers, mut bytes) = (Vec::new(), 0);
        assert!(read(&mut &b"*2\r\n:1\r\n$2\r\nab\r\n"[..], &mut numbers, &mut bytes).is_ok());
        assert_eq!((&*numbers, bytes), (&[1][..], 16));
        assert!(read(&mut &b"-ERR unknown command\r\n"[..], &mut numbers, &mut bytes).is_err());
        assert!(read(&mut &b""[..], &mut numbers, &mut bytes).is_err());
    }
}
