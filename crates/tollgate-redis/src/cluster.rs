//! The slot map of a cluster.
//!
//! The map comes from `CLUSTER SLOTS` and is corrected by redirections (`MOVED`, `ASK`). Each node
//! has its own link, so a dead or silent node does not affect other nodes.
//!
//! Only requests that certainly did not execute are sent again: a redirection is a reply, a broken
//! connection is not.
//!
//! The map is requested when it is missing, when a node redirects, and when a node fails. The
//! request goes to all nodes in parallel, so that it does not wait for a dead node. The first reply is
//! used.

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

/// The minimum time between two requests for the map.
const MAP_REFRESH_INTERVAL: Span = Span::from_millis(100);

/// The timeout of a request for the map.
const MAP_TIMEOUT: Duration = Duration::from_secs(2);

/// A cluster with its last known map.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    map: Mutex<Map>,
    changed: Notify,
}

struct Map {
    links: HashMap<Address, Arc<Link>>,
    /// The primary of each partition.
    owners: Vec<Option<Address>>,
    /// Whether a request for the map is in flight.
    is_refreshing: bool,
    /// When the last request for the map ended.
    refreshed_at: Timestamp,
    /// The reason why the map is missing.
    failure: Failure,
}

impl Cluster {
    pub(crate) fn new(shared: &Arc<Shared>, seeds: &[Address]) -> Arc<Self> {
        let links = seeds.iter().map(|it| (it.clone(), Link::new(shared, Target::Node(it.clone()))));
        let map = Map {
            links: links.collect(),
            owners: vec![None; PARTITIONS],
            is_refreshing: false,
            refreshed_at: Timestamp::EPOCH,
            failure: Failure::refused("the slot map of the cluster is not known yet"),
        };
        Arc::new(Self { shared: Arc::clone(shared), map: Mutex::new(map), changed: Notify::new() })
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        // The next map replaces the state that a panicking thread left.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the link to the primary of a partition, and waits for the map if necessary.
    pub(crate) async fn link(self: &Arc<Self>, partition: usize) -> Result<Arc<Link>, Failure> {
        loop {
            let changed = self.changed.notified();
            {
                let mut map = self.map();
                if let Some(link) = map.owners[partition].as_ref().and_then(|owner| map.links.get(owner)) {
                    return Ok(Arc::clone(link));
                }
                let is_fresh = self.shared.clock.now().since(map.refreshed_at) < MAP_REFRESH_INTERVAL;
                if !map.is_refreshing && is_fresh {
                    return Err(map.failure.clone());
                }
                self.refresh(&mut map);
            }
            changed.await;
        }
    }

    /// Follows a redirection, permanent (`MOVED`) or for this request (`ASK`).
    pub(crate) fn follow_redirection(self: &Arc<Self>, to: &str, moved: Option<usize>) -> Option<Arc<Link>> {
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

    /// Requests a new map after a node failed: a replica may have taken over its slots.
    pub(crate) fn node_failed(self: &Arc<Self>) {
        self.refresh(&mut self.map());
    }

    fn refresh(self: &Arc<Self>, map: &mut Map) {
        let now = self.shared.clock.now();
        if map.is_refreshing || now.since(map.refreshed_at) < MAP_REFRESH_INTERVAL {
            return;
        }
        map.is_refreshing = true;
        let query = MapQuery { cluster: Arc::clone(self), reply: None };
        tokio::spawn(query.run(map.links.values().cloned().collect()));
    }
}

/// The first slot, the last slot, and their primary.
type Range = (u16, u16, Address);

/// A request for the map. If it is dropped with its runtime, it has failed.
struct MapQuery {
    cluster: Arc<Cluster>,
    reply: Option<Result<Vec<Range>, Failure>>,
}

impl MapQuery {
    async fn run(mut self, links: Vec<Arc<Link>>) {
        let mut queries = JoinSet::new();
        for link in links {
            queries.spawn(tokio::time::timeout(MAP_TIMEOUT, query_slots(link)));
        }
        let mut failure = Failure::refused("no node of the cluster answers");
        while let Some(reply) = queries.join_next().await {
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
        map.is_refreshing = false;
        map.refreshed_at = cluster.shared.clock.now();
        match self.reply.take() {
            None => {}
            Some(Err(why)) => map.failure = why,
            Some(Ok(ranges)) => {
                let owner = |partition| {
                    let slot = slot_of(partition);
                    ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|it| &it.2)
                };
                for partition in 0..PARTITIONS {
                    let owner = owner(partition).cloned();
                    if let Some(address) = &owner {
                        let fresh = || Link::new(&cluster.shared, Target::Node(address.clone()));
                        map.links.entry(address.clone()).or_insert_with(fresh);
                    }
                    map.owners[partition] = owner;
                }
                map.failure = Failure::refused(
                    "no node of the cluster serves this slot (some slots are not covered: see `CLUSTER INFO`)",
                );
            }
        }
        drop(map);
        cluster.changed.notify_waiters();
    }
}

/// Requests the map from one node.
async fn query_slots(link: Arc<Link>) -> Result<Vec<Range>, Failure> {
    let (mut connection, number) = link.connection().await?;
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    let reply = match connection.query(&command).await {
        Ok(reply) => reply.map_err(|error| link.failed(number, &error))?,
        Err(unsent) => return Err(link.ended(number, &unsent)),
    };
    let Value::Array(ranges) = reply else {
        return Err(Failure::failed("the reply to `CLUSTER SLOTS` is not an array"));
    };
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
        // The node does not know its own address: uses the address of the link.
        _ => link.host()?.to_owned(),
    };
    let port = u16::try_from(*port).ok()?;
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, Address { host, port }))
}
