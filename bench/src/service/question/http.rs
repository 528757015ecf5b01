//! Requests over HTTP with wrk: 64 connections, each with one request in flight.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Amount, Answer, KEYS, Limit, Question, exchange, surprise};
use crate::gateway::wrk;
use crate::sample::Pace;

/// Distance between consecutive keys. It is coprime to their number, so all keys are used.
const STEP: u64 = 7_919;

/// A request over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// Tollgate's `POST /v1/check`, with a policy.
    Check,
    /// throttlecrab's `POST /throttle`, which carries its limit.
    Throttle,
}

/// The paths that have a limit in [`policy`].
const AMPLE: &str = "/ample";
const SMALL: &str = "/small";

/// Returns the policy of [`Http::Check`].
pub fn policy() -> String {
    format!(
        "limits:
  - {{endpoint: {AMPLE}, by: user, bucket: {}}}
  - {{endpoint: {SMALL}, by: user, bucket: {}}}
",
        Limit::AMPLE.bucket(),
        Limit::SMALL.bucket()
    )
}

impl Http {
    fn path(self) -> &'static str {
        match self {
            Self::Check => "/v1/check",
            Self::Throttle => "/throttle",
        }
    }

    /// Returns the text before and after the key.
    fn around(self, limit: Limit) -> (&'static str, String) {
        let Limit { units, seconds } = limit;
        match self {
            Self::Check => {
                let path = if limit == Limit::SMALL { SMALL } else { AMPLE };
                ("{\"user\":\"", format!("\",\"path\":\"{path}\"}}"))
            }
            Self::Throttle => {
                let rest = format!("\"max_burst\":{units},\"count_per_period\":{units},\"period\":{seconds}");
                ("{\"key\":\"", format!("\",{rest}}}"))
            }
        }
    }

    /// Returns a request with additional header lines.
    fn written(self, server: SocketAddr, limit: Limit, key: &str, lines: &str) -> Vec<u8> {
        let (path, (before, after)) = (self.path(), self.around(limit));
        let body = format!("{before}{key}{after}");
        format!(
            "POST {path} HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{lines}\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    fn read(self, body: &str) -> Option<(bool, u64)> {
        let body: Value = serde_json::from_str(body).ok()?;
        let left = match self {
            Self::Check => &body["limits"][0]["remaining"],
            Self::Throttle => &body["remaining"],
        };
        Some((body["allowed"].as_bool()?, left.as_u64()?))
    }

    /// Returns the script of wrk, which formats all requests before it sends the first.
    fn script(self, limit: Limit) -> String {
        let (path, (before, after)) = (self.path(), self.around(limit));
        format!(
            "wrk.headers['Content-Type'] = 'application/json'
local requests, at = {{}}, 0
function init()
  for turn = 1, {KEYS} do
    local key = string.format('key:%012d', turn * {STEP} % {KEYS})
    requests[turn] = wrk.format('POST', '{path}', nil, '{before}' .. key .. '{after}')
  end
end
function request()
  at = at % {KEYS} + 1
  return requests[at]
end
"
        )
    }
}

impl Question for Http {
    fn ask(&self, server: SocketAddr, limit: Limit, key: &str) -> io::Result<Answer> {
        let request = self.written(server, limit, key, "Connection: close\r\n");
        let answer = String::from_utf8_lossy(&exchange(server, &request)?).into_owned();
        let body = answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 200 "));
        let read = body.and_then(|(_, body)| self.read(body));
        let (admitted, left) = read.ok_or_else(|| surprise(&answer))?;
        Ok(Answer { admitted, left, bytes: answer.len() })
    }

    fn request(&self, server: SocketAddr, limit: Limit, key: &str) -> Option<Vec<u8>> {
        Some(self.written(server, limit, key, ""))
    }

    fn load(&self, server: SocketAddr, amount: Amount, folder: &Path) -> io::Result<Pace> {
        let script = folder.join("wrk.lua");
        std::fs::write(&script, self.script(self.ample()))?;
        let mut command = Command::new("wrk");
        command.arg("--script").arg(&script).arg(format!("http://{server}"));
        let seen = wrk::run_as(command, amount.seconds)?;
        if seen.refused == 0 && seen.errors == 0 {
            return Ok(seen.pace);
        }
        Err(io::Error::other(format!("wrk saw errors: {seen:?}")))
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Call, Limiter};

    use super::*;

    #[test]
    fn each_endpoint_returns_verdict_and_remaining_units() {
        let check = r#"{"id":"0","allowed":true,"limit":"a","limits":[{"name":"a","remaining":99}]}"#;
        assert_eq!(Http::Check.read(check), Some((true, 99)));
        let throttle = r#"{"allowed":false,"limit":2,"remaining":0,"reset_after":86400,"retry_after":43200}"#;
        assert_eq!(Http::Throttle.read(throttle), Some((false, 0)));
        assert_eq!(Http::Throttle.read(r#"{"error":"x"}"#), None);
    }

    #[test]
    fn the_policy_has_the_two_limits() {
        let limiter = Limiter::from_policy(&policy()).unwrap();
        for (path, limit) in [(AMPLE, Limit::AMPLE), (SMALL, Limit::SMALL)] {
            for taken in 1..=3 {
                let decision = limiter.check(&Call::new("GET", path).user("ann"));
                assert_eq!(decision.is_allowed(), taken <= limit.units);
                let left = decision.limits().next().map(|it| it.outcome().remaining);
                assert_eq!(left, Some(limit.units.saturating_sub(taken)));
            }
        }
    }
}
