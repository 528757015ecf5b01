//! `GET /metrics`: counters in the Prometheus text format.
//!
//! This module writes the health of the store and the modes. Other components append their own lines
//! with [`Api::with_metrics`](crate::Api::with_metrics).
//!
//! Invariant: labels never contain text from callers.

use tollgate::{BreakerState, Health, Limit, Mode, Policy, Store};
use tollgate_telemetry::MetricKind::{Counter, Gauge};
use tollgate_telemetry::{Exposition, MAX_NAMED_LIMITS};

use crate::api::Inner;
use crate::decision_view::mode;
use crate::mode_overrides::{Modes, Switch};
use crate::reply::{Reply, metrics};
use crate::shed_view;

impl<S: Store> Inner<S> {
    pub(crate) fn measure(&self) -> Reply {
        let mut out = String::with_capacity(2048);
        let limiter = self.limiter.load();
        let mut to = Exposition::new(&mut out);
        write_store(&mut to, &limiter.health());
        let modes = self.mode_overrides().modes();
        write_modes(&mut to, limiter.policy(), &modes);
        shed_view::write(&mut to, &limiter, &modes);
        self.append_metrics(&mut out);
        metrics(out)
    }
}

fn write_store(to: &mut Exposition<'_>, health: &Health) {
    let is_open = health.breaker != BreakerState::Closed;
    let help = "Whether the last call to the store succeeded.";
    to.one("tollgate_store_up", Gauge, help, u8::from(health.answers));
    to.one(
        "tollgate_store_breaker_open",
        Gauge,
        "Whether the circuit breaker of the store is open.",
        u8::from(is_open),
    );
    let help = "Calls to the store that failed.";
    to.one("tollgate_store_failures_total", Counter, help, health.failures);
    let help = "How often the circuit breaker opened.";
    to.one("tollgate_breaker_opened_total", Counter, help, health.opened);
    let help = "Decisions without the store, by the on_outage rule that decided.";
    to.family("tollgate_degraded_decisions_total", Counter, help)
        .value(&[("rule", "local")], health.degraded.local)
        .value(&[("rule", "allow")], health.degraded.allow)
        .value(&[("rule", "deny")], health.degraded.deny);
    let help = "Keys with outstanding charges from an outage.";
    to.one("tollgate_ledger_keys", Gauge, help, health.ledger_keys);
    let help = "Units charged to the store after an outage.";
    to.one("tollgate_replayed_units_total", Counter, help, health.replayed_units);
    let help = "Charges of an outage that may be lost.";
    to.one("tollgate_ledger_lost_total", Counter, help, health.lost_entries);
}

/// Writes the modes in force and the overrides. Limits beyond a fixed number have no series, as in all
/// other metrics.
fn write_modes(to: &mut Exposition<'_>, policy: &Policy, modes: &Modes) {
    let limits = || policy.limits().iter().take(MAX_NAMED_LIMITS);
    let help = "The mode of everything: 1 for that mode. At enforce, each limit has its own mode.";
    let mut family = to.family("tollgate_mode", Gauge, help);
    for any in [Mode::Enforce, Mode::Shadow, Mode::Off] {
        family.value(&[("mode", mode(any))], u8::from(modes.everything() == any));
    }
    let mut family =
        to.family("tollgate_limit_mode", Gauge, "The mode in force of each limit: 1 for that mode.");
    for limit in limits() {
        family.value(&[("limit", limit.name()), ("mode", mode(limit.mode()))], 1);
    }
    let help = "Whether a limit has a mode override.";
    let mut family = to.family("tollgate_limit_switched", Gauge, help);
    for limit in limits() {
        family.value(&[("limit", limit.name())], u8::from(modes.is_switched(limit.name())));
    }
    let shedders: Vec<_> = modes.shedders().map(|it| it.name).collect();
    let learned = limits().filter(|limit| limit.adaptive().is_some()).map(Limit::name);
    let mut learning = shedders.iter().map(String::as_str).chain(learned).peekable();
    if learning.peek().is_some() {
        let help = "Whether an operator froze what a shedder has learned.";
        let mut family = to.family("tollgate_frozen", Gauge, help);
        for name in learning {
            family.value(&[("limit", name)], u8::from(modes.switch_of(name) == Switch::Frozen));
        }
    }
}
