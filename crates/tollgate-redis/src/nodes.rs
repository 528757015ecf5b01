//! How many nodes share a Redis: each says so every few seconds.
//!
//! While Redis gives no answer, each node may give its own part of a limit
//! (`tollgate::outage`), so it has to know into how many parts. The number last
//! learned is kept for as long as nobody knows better.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout};

use crate::lane::Hub;
use crate::names;
use crate::shared::Shared;
use crate::way::Answered;

/// Between two announcements.
const EVERY: Duration = Duration::from_secs(3);

const ANNOUNCE: &str = include_str!("../lua/announce.lua");

pub(crate) async fn announce(shared: &Arc<Shared>, hub: &Arc<Hub>) {
    use std::hash::{BuildHasher, RandomState};
    let name = format!("{:016x}", RandomState::new().hash_one(0u8));
    let mut command = Cmd::new();
    command.arg("EVAL").arg(ANNOUNCE).arg(1).arg(names::nodes(&shared.settings.prefix)).arg(&name);
    let nobody = Mutex::default();
    loop {
        let told = timeout(EVERY, hub.way().query(hub.lane_of(names::NODES), &command, &nobody));
        if let Ok(Ok(Answered::With(Value::Int(nodes)))) = told.await
            && let Ok(nodes) = usize::try_from(nodes)
        {
            shared.nodes.store(nodes.max(1), Ordering::Relaxed);
        }
        sleep(EVERY).await;
    }
}
