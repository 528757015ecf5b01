//! Counts the nodes that share a Redis: each node registers itself every few seconds.
//!
//! While Redis does not answer, each node admits its share of a limit (`tollgate::outage`), so it
//! must know the number of nodes. The last known number is kept until a new one arrives.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};

use crate::dispatcher::Dispatcher;
use crate::names;
use crate::router::ServerReply;
use crate::shared::Shared;

/// The time between two announcements.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(3);

const ANNOUNCE_SCRIPT: &str = include_str!("../lua/announce.lua");

pub(crate) async fn announce(shared: &Arc<Shared>, dispatcher: &Arc<Dispatcher>) {
    let name = shared.node.to_string();
    let mut command = Cmd::new();
    command.arg("EVAL").arg(ANNOUNCE_SCRIPT).arg(1).arg(names::nodes(&shared.settings.prefix)).arg(&name);
    let destination = Mutex::default();
    loop {
        let reply = timeout(
            ANNOUNCE_INTERVAL,
            dispatcher.router().query(dispatcher.queue_of(names::NODES_PARTITION), &command, &destination),
        );
        if let Ok(Ok(ServerReply::With(Value::Int(nodes)))) = reply.await
            && let Ok(nodes) = usize::try_from(nodes)
        {
            shared.nodes.store(nodes.max(1), Ordering::Relaxed);
        }
        sleep(ANNOUNCE_INTERVAL).await;
    }
}
