//! Metrics of the remote store.

use tollgate::Store;
use tollgate_lease::{FarCounters, LeaseCounters};
use tollgate_peers::PeerCounters;
use tollgate_redis::Counters;
use tollgate_telemetry::MetricKind::{Counter, Gauge};
use tollgate_telemetry::{Exposition, MetricKind};

use super::AnyStore;

/// Writes the counters in the Prometheus text format; nothing for the memory store.
pub(crate) fn counters(store: &AnyStore, out: &mut String) {
    let Some(remote) = store.remote() else { return };
    let mut to = Exposition::new(out);
    if let Some(redis) = remote.redis() {
        calls(&redis.counters(), &mut to);
    }
    if let Some(postgres) = remote.postgres() {
        transactions(&postgres.counters(), &mut to);
    }
    if let Some(peers) = remote.peers() {
        peer_calls(&peers.counters(), &mut to);
    }
    let help = "Nodes that share the store, including this one, as last known.";
    to.one("tollgate_nodes", Gauge, help, remote.nodes());
    if let Some(leased) = store.leased() {
        leases(&leased.counters(), &mut to);
        regions(&leased.far_counters(), &mut to);
    }
}

/// A metric of each region: its name, kind and help, and its value.
type RegionMetric = (&'static str, MetricKind, &'static str, fn(&FarCounters) -> u64);

/// Writes the metrics of other regions, if there are any.
fn regions(counted: &[FarCounters], to: &mut Exposition<'_>) {
    if counted.is_empty() {
        return;
    }
    let help = "Units that this node borrowed from another region, or returned to it.";
    let mut units = to.family("tollgate_region_units_total", Counter, help);
    for it in counted {
        for (event, number) in [("borrowed", it.borrowed), ("returned", it.returned)] {
            units.value(&[("region", &it.region), ("event", event)], number);
        }
    }
    let numbers: [RegionMetric; 3] = [
        ("tollgate_region_calls_total", Counter, "Calls to the store of another region.", |it| it.calls),
        (
            "tollgate_region_failures_total",
            Counter,
            "Calls to the store of another region that failed.",
            |it| it.failures,
        ),
        (
            "tollgate_region_reachable",
            Gauge,
            "Whether the store of another region answered the last call.",
            |it| it.is_reachable.into(),
        ),
    ];
    for (name, kind, help, read) in numbers {
        let mut family = to.family(name, kind, help);
        for it in counted {
            family.value(&[("region", &it.region)], read(it));
        }
    }
}

fn calls(counted: &Counters, to: &mut Exposition<'_>) {
    to.one("tollgate_redis_decisions_total", Counter, "Decisions made by Redis.", counted.decisions);
    to.one("tollgate_redis_calls_total", Counter, "Calls to Redis for decisions.", counted.calls);
    let help = "Decisions made by the deny cache.";
    to.one("tollgate_redis_remembered_total", Counter, help, counted.remembered);
    to.one("tollgate_redis_failures_total", Counter, "Calls to Redis that failed.", counted.failures);
    to.one("tollgate_redis_connections_total", Counter, "Connections made.", counted.connections);
}

fn transactions(counted: &tollgate_postgres::Counters, to: &mut Exposition<'_>) {
    let help = "Decisions and changes made in PostgreSQL.";
    to.one("tollgate_postgres_decisions_total", Counter, help, counted.decisions);
    let help = "Transactions for decisions and changes.";
    to.one("tollgate_postgres_transactions_total", Counter, help, counted.transactions);
    let help = "Transactions and attempts to connect that failed.";
    to.one("tollgate_postgres_failures_total", Counter, help, counted.failures);
    to.one("tollgate_postgres_connections_total", Counter, "Connections made.", counted.connections);
    let help = "Expired rows that this node deleted.";
    to.one("tollgate_postgres_expired_rows_total", Counter, help, counted.expired);
}

fn peer_calls(counted: &PeerCounters, to: &mut Exposition<'_>) {
    to.one("tollgate_peers_calls_total", Counter, "Calls to other nodes.", counted.calls);
    let help = "Calls to other nodes without an answer.";
    to.one("tollgate_peers_failures_total", Counter, help, counted.failures);
    let help = "Calls that another node refused because it does not hold the partition of the key.";
    to.one("tollgate_peers_not_holder_total", Counter, help, counted.not_holder);
    let help = "States that were copied from earlier holders of their partition.";
    to.one("tollgate_peers_carried_total", Counter, help, counted.carried);
    let help = "Keys that began with a share because their usage was lost with another node.";
    to.one("tollgate_peers_lost_total", Counter, help, counted.lost);
    to.one("tollgate_peers_connections_total", Counter, "Connections to other nodes.", counted.connections);
    to.one("tollgate_peers_served_total", Counter, "Calls of other nodes.", counted.served);
    to.one("tollgate_peers_down", Gauge, "Nodes of the list that cannot be reached.", counted.down);
    let help = "Partitions of keys that this node holds, of 256.";
    to.one("tollgate_peers_partitions", Gauge, help, counted.held);
}

fn leases(counted: &LeaseCounters, to: &mut Exposition<'_>) {
    let LeaseCounters { leased, spent, returned, expired, calls, keys, held } = *counted;
    let help =
        "Units that this node leased, spent, returned, or did not spend before the end of their lease.";
    let mut units = to.family("tollgate_lease_units_total", Counter, help);
    for (event, number) in
        [("leased", leased), ("spent", spent), ("returned", returned), ("expired", expired)]
    {
        units.value(&[("event", event)], number);
    }
    to.one("tollgate_lease_calls_total", Counter, "Leases and returns that the store was asked for.", calls);
    to.one("tollgate_lease_keys", Gauge, "Keys of which this node holds units.", keys);
    to.one("tollgate_lease_units_held", Gauge, "Leased units that this node holds.", held);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate::Policy;
    use tollgate_lease::Leased;
    use tollgate_postgres::PostgresSettings;
    use tollgate_redis::RedisSettings;

    use super::*;
    use crate::store::{RemoteSettings, RemoteStore};

    #[tokio::test]
    async fn a_store_in_postgres_is_counted() {
        let settings = PostgresSettings::parse("postgres://ann@localhost").unwrap();
        let store = RemoteStore::new(RemoteSettings::Postgres(settings));
        let mut out = String::new();
        counters(&AnyStore::Remote(Arc::new(Leased::new(store))), &mut out);
        for name in ["decisions", "transactions", "failures", "connections", "expired_rows"] {
            let name = format!("tollgate_postgres_{name}_total");
            assert!(out.contains(&format!("# TYPE {name} counter\n{name} 0\n")), "{out}");
        }
        assert!(!out.contains("redis"), "{out}");
    }

    #[tokio::test]
    async fn a_store_in_redis_is_counted_and_one_in_memory_is_not() {
        let mut out = String::new();
        counters(&AnyStore::memory(&Policy::parse("limits: []").unwrap()), &mut out);
        assert_eq!(out, "");
        let settings = RedisSettings::parse(&["redis://localhost"]).unwrap();
        let store = RemoteStore::new(RemoteSettings::Redis(settings));
        counters(&AnyStore::Remote(Arc::new(Leased::new(store))), &mut out);
        for name in ["redis_decisions_total", "redis_calls_total", "redis_remembered_total"] {
            assert!(out.contains(&format!("\n# TYPE tollgate_{name} counter\ntollgate_{name} 0\n")), "{out}");
        }
        assert!(out.contains("\ntollgate_lease_units_total{event=\"leased\"} 0\n"), "{out}");
        assert!(out.contains("\n# TYPE tollgate_nodes gauge\ntollgate_nodes 1\n"), "{out}");
    }
}
