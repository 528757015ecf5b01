//! How many nodes share a Redis: each says so every few seconds.
//!
//! While Redis gives no answer, each node may give its own part of a limit
//! (`tollgate::outage`), so it has to know into how many parts. The number last
//! learned is kept for as long as nobody knows better.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};

use crate::lane::Hub;
use crate::names;
use crate::shared::Shared;

/// Between two announcements.
const EVERY: Duration = Duration::from_secs(3);

const ANNOUNCE: &str = include_str!("../lua/announce.lua");

pub(crate) async fn announce(shared: &Arc<Shared>, hub: &Arc<Hub>) {
    use std::hash::{BuildHasher, RandomState};
    let name = format!("{:016x}", RandomState::new().hash_one(0u8));
    let mut command = Cmd::new();
    command.arg("EVAL").arg(ANNOUNCE).arg(1).arg(names::nodes(&shared.settings.prefix)).arg(&name);
    loop {
        let told = timeout(EVERY, async {
            let (mut connection, number) = hub.link().connection().await.ok()?;
            connection.query(&command).await.map_err(|error| hub.link().failed(number, &error)).ok()
        });
        if let Ok(Some(Value::Int(nodes))) = told.await
            && let Ok(nodes) = usize::try_from(nodes)
        {
            shared.nodes.store(nodes.max(1), Ordering::Relaxed);
        }
        sleep(EVERY).await;
    }
}
