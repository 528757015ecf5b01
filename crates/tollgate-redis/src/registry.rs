//! The registry of rules: which rules the nodes that share a Redis use, and have used.
//!
//! A state is stored under the id of its rule, and a rule whose numbers change gets another id. A node
//! that knows the rules of other nodes, and those of earlier ones whose usage still counts, makes them
//! predecessors of its own, and then carries their usage over and charges them too
//! (`tollgate_core::Rule::replacing`). It learns them here.
//!
//! The registry has *versions*: the rules of a policy as bytes, whose meaning only the caller knows
//! (`tollgate_policy::RuleSet`), under a digest. Versions have increasing revisions. A node tells which
//! version is in force on it, and up to which revision it knows the rules of all versions. Everything
//! is in one partition, so one script reads and writes it atomically:
//!
//! ```text
//! tg1:{0}:rules                    versions and nodes, as one MessagePack array
//! tg1:{0}:rules:9f86d081884c7d65   the rules of a version
//! ```
//!
//! Nodes of earlier versions of Tollgate neither read nor write it. No request reads it. It is bounded:
//! 32 versions, and each is forgotten when its usage no longer counts.
//!
//! Not here: when a version comes into force (the daemon).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;
use tollgate_core::Span;

use crate::dispatcher::Dispatcher;
use crate::failure::Failure;
use crate::names;
use crate::router::ServerReply;
use crate::shared::Shared;

/// The time that a call may take. It is not the deadline of requests, because no request waits for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time for which a version is kept after its last use: longer than any quota counts.
const MAX_MEMORY: Span = Span::from_days(800);

const REGISTRY_SCRIPT: &str = include_str!("../lua/registry.lua");
const LEAVE_SCRIPT: &str = include_str!("../lua/leave.lua");

/// The rules of a policy, as a registry keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The digest of the rules.
    pub digest: u64,
    /// How long usage that is charged now still counts.
    pub memory: Span,
    /// The encoded rules.
    pub rules: Arc<[u8]>,
}

/// The entry of a node.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'r> {
    /// The version to register.
    pub version: &'r Version,
    /// Whether to send its rules. They are sent once; afterwards, the digest is enough.
    pub sends_rules: bool,
    /// The digest of the version that is in force on this node.
    pub in_force: u64,
    /// The revision up to which this node knows the rules of all versions. `None` for a node that joins:
    /// it reads all versions before it serves.
    pub known_revision: Option<u64>,
}

/// The versions and the other nodes of a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// The newest revision.
    pub revision: u64,
    /// The versions whose usage may count, the oldest revision first.
    pub versions: Vec<RegisteredVersion>,
    /// The other nodes.
    pub nodes: Vec<RegisteredNode>,
}

/// A version in a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredVersion {
    /// The digest of its rules.
    pub digest: u64,
    /// Its revision: later versions have higher ones.
    pub revision: u64,
    /// How long it is kept if no node uses it.
    pub expires_in: Span,
}

/// Another node in a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredNode {
    /// The digest of the version that is in force on it.
    pub in_force: u64,
    /// The revision up to which it knows the rules of all versions.
    pub known_revision: u64,
}

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
    command.arg(version.memory.min(MAX_MEMORY).as_micros().div_ceil(1_000_000).max(1));
    command.arg(if sends_rules { &*version.rules } else { &[] });
    command.arg(format!("{in_force:016x}"));
    command.arg(known_revision.map(|it| it.to_string()).unwrap_or_default());
    match query(dispatcher, &command).await? {
        Value::Array(parts) => {
            parse(&parts).ok_or_else(|| Failure::failed("the reply of the registry is invalid"))
        }
        _ => Err(Failure::failed("the reply of the registry is invalid")),
    }
}

/// Returns the rules of a version.
pub(crate) async fn rules(
    shared: &Shared,
    dispatcher: &Dispatcher,
    version: u64,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut command = Cmd::new();
    command.arg("GET").arg(names::version_rules(&shared.settings.prefix, version));
    match query(dispatcher, &command).await? {
        Value::BulkString(bytes) => Ok(Some(bytes)),
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
