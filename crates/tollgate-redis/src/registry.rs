//! The registry of rules in Redis, as in [`tollgate_store::version_registry`].
//!
//! Everything is in one partition, so one script reads and writes it atomically:
//!
//! ```text
//! tg1:{0}:rules                    versions and nodes, as one MessagePack array
//! tg1:{0}:rules:9f86d081884c7d65   the rules of a version
//! ```
//!
//! Nodes of earlier versions of Tollgate neither read nor write it. No request reads it.

use std::sync::Mutex;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;
use tollgate_core::Span;
use tollgate_store::Clock as _;
use tollgate_store::version_registry::{
    MAX_MEMORY, MAX_RULES_BYTES, MAX_VERSIONS, REGISTRATION_LIFETIME, RegisteredNode, RegisteredVersion,
    Registration, Registry,
};

use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::names;
use crate::router::ServerReply;
use crate::shared::Shared;

/// The time that a call may take. It is not the deadline of requests, because no request waits for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

const REGISTRY_SCRIPT: &str = include_str!("../lua/registry.lua");
const LEAVE_SCRIPT: &str = include_str!("../lua/leave.lua");
/// Any value may have been written: of another type, or of any length.
const READ_RULES_SCRIPT: &str = "local rules = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[1]) \
    return type(rules) == 'string' and rules";

/// Registers a node with its version. `None`: the rules of the version have to be sent.
pub(crate) async fn register(
    shared: &Shared,
    dispatcher: &Dispatcher,
    registration: &Registration<'_>,
) -> Result<Option<Registry>, Failure> {
    let Registration { version, sends_rules, in_force, known_revision } = *registration;
    let prefix = &shared.settings.prefix;
    let mut command = Cmd::new();
    command.arg("EVAL").arg(REGISTRY_SCRIPT).arg(2);
    command.arg(names::rules(prefix)).arg(names::version_rules(prefix, version.digest));
    command.arg(shared.node.to_string()).arg(format!("{:016x}", version.digest));
    command.arg(seconds(version.memory.min(MAX_MEMORY)).max(1));
    command.arg(if sends_rules { &*version.rules } else { &[] });
    command.arg(format!("{in_force:016x}"));
    command.arg(known_revision.map(|it| it.to_string()).unwrap_or_default());
    command.arg(version.rules.len()).arg(MAX_VERSIONS).arg(REGISTRATION_LIFETIME.as_secs());
    command.arg(seconds(MAX_MEMORY));
    let sent = shared.clock.now();
    let reply = query(dispatcher, &command).await?;
    let parsed = if let Value::Array(parts) = &reply { parse(parts) } else { None };
    let registry = parsed.ok_or_else(|| Failure::failed("the reply of the registry is invalid"))?;
    if registry.is_some() {
        shared.gate.register(sent);
    }
    Ok(registry)
}

/// Returns a span in seconds, rounded up.
const fn seconds(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000_000)
}

/// Returns the rules of a version.
pub(crate) async fn rules(
    shared: &Shared,
    dispatcher: &Dispatcher,
    version: u64,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut command = Cmd::new();
    command.arg("EVAL").arg(READ_RULES_SCRIPT).arg(1);
    command.arg(names::version_rules(&shared.settings.prefix, version)).arg(MAX_RULES_BYTES);
    match query(dispatcher, &command).await? {
        Value::BulkString(bytes) => Ok(Some(bytes).filter(|it| (1..=MAX_RULES_BYTES).contains(&it.len()))),
        _ => Ok(None),
    }
}

/// Removes this node.
pub(crate) async fn leave(shared: &Shared, dispatcher: &Dispatcher) -> Result<(), Failure> {
    let prefix = &shared.settings.prefix;
    let mut command = Cmd::new();
    command.arg("EVAL").arg(LEAVE_SCRIPT).arg(2).arg(names::nodes(prefix)).arg(names::rules(prefix));
    command.arg(shared.node.to_string());
    query(dispatcher, &command).await.map(drop)
}

async fn query(dispatcher: &Dispatcher, command: &Cmd) -> Result<Value, Failure> {
    let destination = Mutex::default();
    let queue = dispatcher.queue_of(names::NODES_PARTITION);
    match timeout(CALL_TIMEOUT, dispatcher.router().query(queue, command, &destination)).await {
        Ok(Ok(ServerReply::With(value))) => Ok(value),
        Ok(Ok(ServerReply::NoScript)) => Err(Failure::refused("Redis does not execute scripts")),
        Ok(Err(failure)) => Err(failure),
        Err(_elapsed) => Err(Failure::TimedOut(CALL_TIMEOUT)),
    }
}

/// Parses a reply; the outer `None` means that it is invalid.
#[allow(clippy::option_option, reason = "an invalid reply, none, and a registry")]
fn parse(parts: &[Value]) -> Option<Option<Registry>> {
    match parts {
        [Value::Int(0)] => Some(None),
        [Value::Int(1), revision, Value::Array(versions), Value::Array(nodes)] => {
            let version = |it: &[Value; 3]| {
                let [digest, revision, expires_in] = it;
                Some(RegisteredVersion {
                    digest: as_digest(digest)?,
                    revision: as_number(revision)?,
                    expires_in: Span::from_secs(as_number(expires_in)?),
                })
            };
            let node = |it: &[Value; 2]| {
                let [in_force, known_revision] = it;
                Some(RegisteredNode {
                    in_force: as_digest(in_force)?,
                    known_revision: as_number(known_revision)?,
                })
            };
            // An entry that Tollgate did not write is skipped.
            let mut versions: Vec<_> = versions.as_chunks().0.iter().filter_map(version).collect();
            versions.sort_by_key(|it| it.revision);
            let nodes = nodes.as_chunks().0.iter().filter_map(node).collect();
            Some(Some(Registry { revision: as_number(revision)?, versions, nodes }))
        }
        _ => None,
    }
}

fn as_number(value: &Value) -> Option<u64> {
    if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None }
}

fn as_digest(value: &Value) -> Option<u64> {
    let Value::BulkString(text) = value else { return None };
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}
