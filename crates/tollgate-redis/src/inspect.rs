//! Reads facts about a server for `tollgate doctor`. No request uses them.

use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use crate::connect::{Target, connect, longest_attempt};
use crate::settings::{RedisSettings, Topology};

/// The number of calls whose median is the round-trip time.
const PINGS: usize = 5;
/// The maximum duration of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Facts about a server. A fact that the server does not permit to read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// The version, such as `7.0.15`.
    pub version: Option<String>,
    /// The maximum memory in bytes; zero: no maximum.
    pub max_memory: Option<u64>,
    /// The value of `maxmemory-policy`, such as `noeviction`.
    pub eviction: Option<String>,
    /// The time of the server since the Unix epoch.
    pub time: Option<Duration>,
    /// The median duration of a call.
    pub round_trip: Duration,
}

/// Connects to the server, the primary or the first node of a cluster, and reads facts about it.
/// Returns the reason if there is no connection.
pub async fn inspect(settings: &RedisSettings) -> Result<ServerReport, String> {
    let target = match &settings.topology {
        Topology::Cluster(nodes) => nodes.first().cloned().map_or(Target::Named, Target::Node),
        _ => Target::Named,
    };
    let patience = longest_attempt(settings, &target);
    let Ok(connected) = timeout(patience, connect(settings, &target)).await else {
        return Err(format!("{}: no connection within {patience:?}", target.of(settings)));
    };
    let mut connection = connected?;
    let info = ask(&mut connection, &["INFO"]).await.and_then(text).unwrap_or_default();
    let fact =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let mut round_trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let started_at = Instant::now();
        let _reply = ask(&mut connection, &["PING"]).await;
        round_trips.push(started_at.elapsed());
    }
    round_trips.sort();
    Ok(ServerReport {
        version: fact("redis_version").map(str::to_owned),
        max_memory: fact("maxmemory").and_then(|it| it.parse().ok()),
        eviction: fact("maxmemory_policy").map(str::to_owned),
        time: ask(&mut connection, &["TIME"]).await.and_then(time),
        round_trip: round_trips[PINGS / 2],
    })
}

async fn ask(connection: &mut MultiplexedConnection, words: &[&str]) -> Option<Value> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(*word);
    }
    let reply = timeout(CALL_TIMEOUT, connection.req_packed_command(&command)).await.ok()?;
    reply.and_then(Value::extract_error).ok()
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Parses the reply of `TIME`: seconds and microseconds.
fn time(value: Value) -> Option<Duration> {
    let Value::Array(parts) = value else { return None };
    let [seconds, micros] = <[Value; 2]>::try_from(parts).ok()?;
    let number = |value: Value| text(value)?.parse().ok();
    Some(Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?))
}
