//! The load generator wrk: 64 connections, each with one request in flight.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::{API_KEY, PATH};
use crate::sample::Pace;

/// Number of connections.
pub const CONNECTIONS: usize = 64;

/// The results of wrk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrkReport {
    /// Number and rate of responses.
    pub pace: Pace,
    /// Responses other than 2xx and 3xx.
    pub refused: u64,
    /// Connection errors and timeouts.
    pub errors: u64,
}

/// Returns the version of wrk.
pub fn version() -> io::Result<String> {
    let output = Command::new("wrk").arg("-v").output();
    let output = output.map_err(|error| io::Error::other(format!("cannot start wrk: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// Writes the script of a load in which each connection pauses before its next request, so that servers of different
/// speed get nearly the same number of requests.
pub fn write_pause(folder: &Path, milliseconds: u64) -> io::Result<PathBuf> {
    let script = folder.join("pause.lua");
    fs::write(&script, format!("function delay() return {milliseconds} end\n"))?;
    Ok(script)
}

/// Loads a gateway for this many seconds, with a script if there is one. `before` is an optional program that wraps wrk,
/// with its arguments.
pub fn run(
    address: SocketAddr,
    seconds: u64,
    script: Option<&Path>,
    before: &[String],
) -> io::Result<WrkReport> {
    let mut command = match before {
        [] => Command::new("wrk"),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg("wrk");
            command
        }
    };
    if let Some(script) = script {
        command.arg("--script").arg(script);
    }
    command.arg("--header").arg(format!("X-Api-Key: {API_KEY}")).arg(format!("http://{address}{PATH}"));
    run_as(command, seconds)
}

/// Runs a wrk command with the common arguments.
pub fn run_as(mut command: Command, seconds: u64) -> io::Result<WrkReport> {
    command.arg("--threads=1").arg(format!("--connections={CONNECTIONS}"));
    command.arg(format!("--duration={seconds}s")).arg("--latency");
    let output = command.output().map_err(|error| io::Error::other(format!("cannot start wrk: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let seen = parse(&said).filter(|_| output.status.success());
    seen.ok_or_else(|| {
        io::Error::other(format!("wrk said:\n{said}{}", String::from_utf8_lossy(&output.stderr)))
    })
}

fn parse(said: &str) -> Option<WrkReport> {
    let after = |mark: &str| said.lines().find_map(|line| line.trim().strip_prefix(mark)).map(str::trim);
    let requests = said.lines().find_map(|line| line.split_once(" requests in "))?.0.trim().parse().ok()?;
    let refused = match after("Non-2xx or 3xx responses:") {
        Some(count) => count.parse().ok()?,
        None => 0,
    };
    let errors = after("Socket errors:").map_or(0, |kinds| {
        // "connect 0, read 3, write 0, timeout 0"
        kinds.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum()
    });
    let pace = Pace {
        requests,
        per_second: after("Requests/sec:")?.parse().ok()?,
        p50_us: microseconds(after("50%")?)?,
        p99_us: microseconds(after("99%")?)?,
    };
    Some(WrkReport { pace, refused, errors })
}

/// Parses a time with the units of wrk and h2load: `812.00us`, `1.02ms`, `2.00s`, `1.00m`.
pub(crate) fn microseconds(text: &str) -> Option<f64> {
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::{Pace, WrkReport, parse};

    const SAID: &str = "Running 4s test @ http://127.0.0.1:9002/api/v1/posts
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.91ms    3.68ms  69.21ms   99.52%
    Req/Sec    28.36k     6.34k   49.10k    50.00%
  Latency Distribution
     50%  840.00us
     75%    3.65ms
     90%    5.79ms
     99%   17.07ms
  112933 requests in 4.01s, 18.09MB read
";

    #[test]
    fn a_clean_run_has_neither_refusals_nor_errors() {
        check("", 0, 0);
    }

    #[test]
    fn refusals_and_every_kind_of_error_are_counted() {
        check("  Non-2xx or 3xx responses: 112930\n", 112_930, 0);
        check("  Socket errors: connect 1, read 20, write 300, timeout 4000\n", 0, 4_321);
    }

    #[test]
    fn output_of_other_programs_is_rejected() {
        assert_eq!(parse("unable to connect to 127.0.0.1:9 Connection refused"), None);
    }

    fn check(more: &str, refused: u64, errors: u64) {
        let said = format!("{SAID}{more}Requests/sec:  28194.76\nTransfer/sec:      4.52MB\n");
        let pace = Pace { requests: 112_933, per_second: 28_194.76, p50_us: 840.0, p99_us: 17_070.0 };
        let expected = WrkReport { pace, refused, errors };
        assert_eq!(parse(&said), Some(expected), "{more}");
    }
}
