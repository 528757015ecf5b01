//! Which server of a cluster keeps which keys.
//!
//! The cluster says so when it is asked (`CLUSTER SLOTS`), and says otherwise when it is
//! asked wrongly (`MOVED`, `ASK`). Each node has a link of its own, so one that is
//! dead or silent takes nobody with it.
//!
//! Only what certainly was not done is asked again: a redirection is an answer, a broken
//! connection is not.
//!
//! The map is asked for when there is none, when a node redirects, and when one fails; of
//! all nodes at once, so that a dead one is not waited for. The first answer counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tollgate_core::{Span, Timestamp};
use tollgate_store::Clock as _;

use crate::connect::Target;
use crate::failure::Failure;
use crate::link::Link;
use crate::names::{PARTITIONS, slot_of};
use crate::settings::Address;
use crate::shared::Shared;

/// Between two questions for the map.
const MAP_REFRESH_INTERVAL: Span = Span::from_millis(100);

/// How long the map may take.
const MAP_TIMEOUT: Duration = Duration::from_secs(2);

/// A cluster, as it was last seen.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    map: Mutex<Map>,
    changed: Notify,
}

struct Map {
    links: HashMap<Address, Arc<Link>>,
    /// Who keeps each partition.
    owners: Vec<Option<Address>>,
    /// Whether it is being asked for.
    asking: bool,
    asked: Timestamp,
    /// Why there is none.
    failure: Failure,
}

impl Cluster {
    pub(crate) fn new(shared: &Arc<Shared>, seeds: &[Address]) -> Arc<Self> {
        let links = seeds.iter().map(|it| (it.clone(), Link::new(shared, Target::Node(it.clone()))));
        let map = Map {
            links: links.collect(),
            owners: vec![None; PARTITIONS],
            asking: false,
            asked: Timestamp::EPOCH,
            failure: Failure::refused("nobody has told yet who keeps what"),
        };
        Arc::new(Self { shared: Arc::clone(shared), map: Mutex::new(map), changed: Notify::new() })
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        // Whatever a thread that panicked left behind, the next map replaces.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who keeps this partition, as soon as somebody has told.
    pub(crate) async fn link(self: &Arc<Self>, partition: usize) -> Result<Arc<Link>, Failure> {
        loop {
            let changed = self.changed.notified();
            {
                let mut map = self.map();
                if let Some(link) = map.owners[partition].as_ref().and_then(|owner| map.links.get(owner)) {
                    return Ok(Arc::clone(link));
                }
                let is_fresh = self.shared.clock.now().since(map.asked) < MAP_REFRESH_INTERVAL;
                if !map.asking && is_fresh {
                    return Err(map.failure.clone());
                }
                self.refresh(&mut map);
            }
            changed.await;
        }
    }

    /// A node redirects to this one, for good (`MOVED`) or for this once (`ASK`).
    pub(crate) fn redirected(self: &Arc<Self>, to: &str, moved: Option<usize>) -> Option<Arc<Link>> {
        let (host, port) = to.rsplit_once(':')?;
        let address = Address { host: host.to_owned(), port: port.parse().ok()? };
        let mut map = self.map();
        let link = map.links.entry(address.clone());
        let link = Arc::clone(link.or_insert_with(|| Link::new(&self.shared, Target::Node(address.clone()))));
        if let Some(partition) = moved {
            map.owners[partition] = Some(address);
            self.refresh(&mut map);
        }
        Some(link)
    }

    /// A node failed: perhaps somebody else keeps its keys by now.
    pub(crate) fn doubt(self: &Arc<Self>) {
        self.refresh(&mut self.map());
    }

    fn refresh(self: &Arc<Self>, map: &mut Map) {
        let now = self.shared.clock.now();
        if map.asking || now.since(map.asked) < MAP_REFRESH_INTERVAL {
            return;
        }
        map.asking = true;
        let question = MapQuery { cluster: Arc::clone(self), reply: None };
        tokio::spawn(question.run(map.links.values().cloned().collect()));
    }
}

/// The first slot, the last slot, and the primary that keeps them.
type Range = (u16, u16, Address);

/// A question for the map. One that is dropped with its runtime was not answered.
struct MapQuery {
    cluster: Arc<Cluster>,
    reply: Option<Result<Vec<Range>, Failure>>,
}

impl MapQuery {
    async fn run(mut self, links: Vec<Arc<Link>>) {
        let mut asked = JoinSet::new();
        for link in links {
            asked.spawn(tokio::time::timeout(MAP_TIMEOUT, ask(link)));
        }
        let mut failure = Failure::refused("no node of the cluster answers");
        while let Some(reply) = asked.join_next().await {
            match reply {
                Ok(Ok(Ok(ranges))) => {
                    self.reply = Some(Ok(ranges));
                    return;
                }
                Ok(Ok(Err(why))) => failure = why,
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.reply = Some(Err(failure));
    }
}

impl Drop for MapQuery {
    fn drop(&mut self) {
        let cluster = &self.cluster;
        let mut map = cluster.map();
        map.asking = false;
        map.asked = cluster.shared.clock.now();
        match self.reply.take() {
            None => {}
            Some(Err(why)) => map.failure = why,
            Some(Ok(ranges)) => {
                let keeper = |partition| {
                    let slot = slot_of(partition);
                    ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|it| &it.2)
                };
                for partition in 0..PARTITIONS {
                    let keeper = keeper(partition).cloned();
                    if let Some(address) = &keeper {
                        let fresh = || Link::new(&cluster.shared, Target::Node(address.clone()));
                        map.links.entry(address.clone()).or_insert_with(fresh);
                    }
                    map.owners[partition] = keeper;
                }
                map.failure = Failure::refused(
                    "nobody in the cluster keeps this slot (some slots are not covered: see `CLUSTER INFO`)",
                );
            }
        }
        drop(map);
        cluster.changed.notify_waiters();
    }
}

/// Asks one node who keeps what.
async fn ask(link: Arc<Link>) -> Result<Vec<Range>, Failure> {
    let (mut connection, number) = link.connection().await?;
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    let reply = match connection.query(&command).await {
        Ok(reply) => reply.map_err(|error| link.failed(number, &error))?,
        Err(unsent) => return Err(link.ended(number, &unsent)),
    };
    let Value::Array(ranges) = reply else { return Err(Failure::failed("`CLUSTER SLOTS` told no slots")) };
    Ok(ranges.iter().filter_map(|range| read_range(range, &link)).collect())
}

fn read_range(range: &Value, link: &Link) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8(host.clone()).ok()?
        }
        Value::SimpleString(host) if !host.is_empty() && host != "?" => host.clone(),
        // It does not know its own address: then it is the one that we have.
        _ => link.host()?.to_owned(),
    };
    let port = u16::try_from(*port).ok()?;
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, Address { host, port }))
}
