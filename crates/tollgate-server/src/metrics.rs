//! `GET /metrics`: counts for whoever watches, in the text format of Prometheus.
//!
//! Written by hand: a few lines, and nothing is registered anywhere. What a store
//! has to tell besides is appended by whoever knows it ([`Api::with_metrics`](crate::Api::with_metrics)).
//!
//! Invariant: no label ever holds anything that a caller sent.

use std::fmt::{Display, Write as _};

use tollgate::{BreakerState, Health, Store};

use crate::api::Inner;
use crate::reply::{Reply, metrics};

impl<S: Store> Inner<S> {
    pub(crate) fn measure(&self) -> Reply {
        let mut out = String::with_capacity(2048);
        write_store(&mut out, &self.limiter.load().health());
        self.append_metrics(&mut out);
        metrics(out)
    }
}

fn write_store(out: &mut String, health: &Health) {
    let is_open = health.breaker != BreakerState::Closed;
    one(
        out,
        "tollgate_store_up",
        GAUGE,
        "Whether the store answered when last asked.",
        u8::from(health.answers),
    );
    one(out, "tollgate_store_breaker_open", GAUGE, "Whether the store is left alone.", u8::from(is_open));
    one(
        out,
        "tollgate_store_failures_total",
        COUNTER,
        "Questions that the store gave no answer to.",
        health.failures,
    );
    one(
        out,
        "tollgate_breaker_opened_total",
        COUNTER,
        "How often the store was given up for a while.",
        health.opened,
    );
    let name = "tollgate_degraded_decisions_total";
    head(out, name, COUNTER, "Decisions without the store, by the on_outage rule that decided.");
    let degraded = health.degraded;
    for (rule, count) in [("local", degraded.local), ("allow", degraded.allow), ("deny", degraded.deny)] {
        let _never = writeln!(out, "{name}{{rule=\"{rule}\"}} {count}");
    }
    one(
        out,
        "tollgate_ledger_keys",
        GAUGE,
        "Keys to be charged to the store for what they spent in an outage.",
        health.ledger_keys,
    );
    one(
        out,
        "tollgate_replayed_units_total",
        COUNTER,
        "Units charged to the store after an outage.",
        health.replayed_units,
    );
    one(
        out,
        "tollgate_ledger_lost_total",
        COUNTER,
        "Charges of an outage that the store may never have got.",
        health.lost_entries,
    );
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

fn head(out: &mut String, name: &str, kind: &'static str, help: &'static str) {
    // Writing to memory does not fail.
    let _never = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn one(out: &mut String, name: &str, kind: &'static str, help: &'static str, value: impl Display) {
    head(out, name, kind, help);
    let _never = writeln!(out, "{name} {value}");
}
