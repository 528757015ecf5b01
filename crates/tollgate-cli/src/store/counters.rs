//! What the store in Redis has done, as metrics.

use std::fmt::Write;

use tollgate::Store;

use super::AnyStore;

/// The counters, in the text format of Prometheus. Nothing for a store in memory.
pub(crate) fn counters(store: &AnyStore, out: &mut String) {
    let Some(redis) = store.redis() else { return };
    let counted = redis.counters();
    for (name, kind, help, value) in [
        ("tollgate_redis_decisions_total", "counter", "Decisions made by Redis.", counted.decisions),
        ("tollgate_redis_calls_total", "counter", "Calls that these took.", counted.calls),
        (
            "tollgate_redis_remembered_total",
            "counter",
            "Decisions made by what was remembered of a refusal.",
            counted.remembered,
        ),
        ("tollgate_redis_failures_total", "counter", "Calls that brought no answer.", counted.failures),
        ("tollgate_redis_connections_total", "counter", "Connections made.", counted.connections),
        (
            "tollgate_nodes",
            "gauge",
            "Nodes that share the store, this one included, as last known.",
            u64::try_from(redis.nodes()).unwrap_or(u64::MAX),
        ),
    ] {
        // Writing to memory does not fail.
        let _never = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate::Policy;
    use tollgate_redis::{RedisSettings, RedisStore};

    use super::*;

    #[tokio::test]
    async fn a_store_in_redis_is_counted_and_one_in_memory_is_not() {
        let mut out = String::new();
        counters(&AnyStore::memory(&Policy::parse("limits: []").unwrap()), &mut out);
        assert_eq!(out, "");
        let settings = RedisSettings::parse(&["redis://localhost"]).unwrap();
        counters(&AnyStore::Redis(Arc::new(RedisStore::new(settings))), &mut out);
        for name in ["redis_decisions_total", "redis_calls_total", "redis_remembered_total"] {
            assert!(out.contains(&format!("\n# TYPE tollgate_{name} counter\ntollgate_{name} 0\n")), "{out}");
        }
        assert!(out.contains("\n# TYPE tollgate_nodes gauge\ntollgate_nodes 1\n"), "{out}");
    }
}
