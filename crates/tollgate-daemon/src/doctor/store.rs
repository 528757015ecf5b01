//! Checks the server of the counters.

use std::time::Duration;

use tollgate::{Clock as _, SystemClock};
use tollgate_redis::{ServerReport, inspect};

use super::{Finding, Severity};
use crate::io_error::without_numbers;
use crate::store::{RemoteSettings, RemoteStore, in_full};

/// The difference of two clocks that is tolerated without a remark.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);
/// The share of the deadline that a call may take without a remark.
const DEADLINE_DIVISOR: u32 = 5;

/// Returns the findings about the configured store.
pub(super) async fn findings(settings: Option<&RemoteSettings>) -> Vec<Finding> {
    match settings {
        None => vec![Finding::new("store", Severity::Ok, "memory: each node counts on its own").help(
            "several nodes share one budget with `store: redis://HOST:6379`, `postgres://…` or `tollgate://…`",
        )],
        Some(RemoteSettings::Redis(settings)) => match inspect(settings).await {
            Ok(report) => {
                let now = Duration::from_micros(SystemClock::new().now().as_micros());
                redis(&report, settings.deadline, now)
            }
            Err(why) => vec![unreachable(&settings.to_string(), &why)],
        },
        Some(settings @ (RemoteSettings::Postgres(_) | RemoteSettings::Peers(_))) => {
            let store = RemoteStore::new(settings.clone());
            vec![match store.connect().await {
                Ok(()) => Finding::new("store", Severity::Ok, format!("{store} answers")),
                Err(error) => unreachable(&store.to_string(), &in_full(&error)),
            }]
        }
    }
}

fn unreachable(store: &str, why: &str) -> Finding {
    // The address is not named twice.
    let why = why.split_once(": ").filter(|(address, _)| store.contains(address)).map_or(why, |(_, why)| why);
    let why = without_numbers(why);
    Finding::new("store", Severity::Problem, format!("{store}: {why}")).help(
        "until it answers, each limit follows its `on_outage`; correct the address, the password or the firewall",
    )
}

/// Words the facts about a Redis server.
fn redis(report: &ServerReport, deadline: Duration, now: Duration) -> Vec<Finding> {
    let new = |severity, message: String| Finding::new("store", severity, message);
    let (version, took) = (report.version.as_deref().unwrap_or("of an unknown version"), report.round_trip);
    let mut findings = vec![new(Severity::Ok, format!("Redis {version} answers in {took:?}"))];
    if took * DEADLINE_DIVISOR > deadline {
        let message = format!("a call takes {took:?} of the deadline of {deadline:?}");
        findings.push(
            new(Severity::Warning, message)
                .help("put Redis closer, or raise `store.deadline`; `lease: auto` needs fewer calls"),
        );
    }
    findings.push(match (report.eviction.as_deref(), report.max_memory) {
        (None, _) => new(Severity::Note, "this user may not read `maxmemory-policy`".to_owned())
            .help("make sure that it is noeviction: an evicted counter is a fresh allowance"),
        (Some("noeviction"), _) => new(Severity::Ok, "maxmemory-policy is noeviction".to_owned()),
        (Some(other), Some(0)) => new(
            Severity::Note,
            format!("maxmemory-policy is {other}; without `maxmemory` nothing is evicted"),
        )
        .help("if `maxmemory` is ever set, set maxmemory-policy to noeviction first"),
        (Some(other), _) => new(
            Severity::Warning,
            format!("maxmemory-policy is {other}: an evicted counter is a fresh allowance"),
        )
        .help("CONFIG SET maxmemory-policy noeviction, on a Redis that is not used as a cache"),
    });
    if let Some(skew) = report.time.map(|it| it.abs_diff(now)).filter(|it| *it > MAX_CLOCK_SKEW) {
        let message = format!("the clocks of Redis and of this machine differ by {} s", skew.as_secs());
        findings.push(new(Severity::Warning, message).help(
            "decisions use the clock of Redis, log and dashboard that of this machine: run an NTP service on both",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_down_is_named_once_and_without_error_numbers() {
        let found =
            unreachable("redis://127.0.0.1:6399", "127.0.0.1:6399: Connection refused (os error 111)");
        assert_eq!(found.message, "redis://127.0.0.1:6399: Connection refused");
        let found = unreachable("redis://a:1,b:2", "c:3: no primary: it is down");
        assert_eq!(found.message, "redis://a:1,b:2: c:3: no primary: it is down");
    }

    #[test]
    fn a_distant_server_with_another_clock_is_reported() {
        let mut report = ServerReport::default();
        report.round_trip = Duration::from_millis(20);
        report.time = Some(Duration::from_secs(1_000));
        let found = redis(&report, Duration::from_millis(50), Duration::from_secs(1_090));
        let found: Vec<_> = found.iter().map(|it| (it.severity, it.message.as_str())).collect();
        assert_eq!(
            found,
            [
                (Severity::Ok, "Redis of an unknown version answers in 20ms"),
                (Severity::Warning, "a call takes 20ms of the deadline of 50ms"),
                (Severity::Note, "this user may not read `maxmemory-policy`"),
                (Severity::Warning, "the clocks of Redis and of this machine differ by 90 s"),
            ]
        );
    }
}
