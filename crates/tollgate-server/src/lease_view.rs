//! The leases of this node, as the API shows them.

use std::cmp::Reverse;
use std::hash::RandomState;

use tollgate::policy::Key;
use tollgate::store::Holding;
use tollgate::{Limit, Limiter, Policy, Store};
use tollgate_api::{
    HeldLease, LeasedLimit, Leases, MAX_FLEET_LEASES, MAX_HELD_LEASES, MAX_LEASED_LIMITS, NodeLease,
    NodeLeases,
};

use crate::status::tag;

/// Returns the leases of this node. Keys are shown as the policy says, with tags made with `secret`.
pub(crate) fn leases<S: Store>(limiter: &Limiter<S>, secret: &RandomState) -> Leases {
    let policy = limiter.policy();
    let holdings = limiter.holdings(usize::MAX);
    let mut limits: Vec<_> =
        policy.limits().iter().filter_map(|it| leased_limit(limiter, it, &holdings)).collect();
    limits.sort_by_key(|it| Reverse(it.units));
    limits.truncate(MAX_LEASED_LIMITS);
    Leases {
        keys: holdings.len() as u64,
        units: sum(&holdings),
        limits,
        held: holdings.iter().filter_map(|it| held(policy, it, secret)).take(MAX_HELD_LEASES).collect(),
    }
}

/// Returns the leases of this node in numbers, for other nodes.
pub(crate) fn node_leases<S: Store>(limiter: &Limiter<S>) -> NodeLeases {
    let mut limits: Vec<NodeLease> = Vec::new();
    let holdings = limiter.holdings(usize::MAX);
    for holding in &holdings {
        let name = limit_name(holding);
        let expires_in_ms = holding.expires_in.as_millis_ceil();
        match limits.iter_mut().find(|it| it.limit == name) {
            Some(known) => {
                known.units = known.units.saturating_add(holding.units);
                known.expires_in_ms = known.expires_in_ms.max(expires_in_ms);
            }
            None => limits.push(NodeLease { limit: name.to_owned(), units: holding.units, expires_in_ms }),
        }
    }
    limits.sort_by_key(|it| Reverse(it.units));
    limits.truncate(MAX_FLEET_LEASES);
    NodeLeases { keys: holdings.len() as u64, units: sum(&holdings), limits }
}

fn sum(holdings: &[Holding]) -> u64 {
    holdings.iter().fold(0, |sum: u64, it| sum.saturating_add(it.units))
}

/// Returns the limit of a holding. A rule is named after its limit, followed by the window if there are
/// several.
fn limit_name(holding: &Holding) -> &str {
    holding.rule.split('/').next().unwrap_or_default()
}

/// Returns the summary of a limit, if the store decides it from leases.
fn leased_limit<S: Store>(limiter: &Limiter<S>, limit: &Limit, holdings: &[Holding]) -> Option<LeasedLimit> {
    // The store says whether it leases at all.
    let leases = limit.rules().iter().filter(|rule| limiter.holding(rule, &Key::default()).is_some());
    let lease = leases.filter_map(|rule| rule.lease).max()?;
    let own = || holdings.iter().filter(|it| limit_name(it) == limit.name());
    Some(LeasedLimit {
        limit: limit.name().to_owned(),
        lease_ms: lease.as_millis_ceil(),
        keys: own().count() as u64,
        units: own().fold(0, |sum, it| sum.saturating_add(it.units)),
        expires_in_ms: own().map(|it| it.expires_in.as_millis_ceil()).max(),
    })
}

/// Returns the view of a holding. `None` if its limit is not in the policy anymore.
fn held(policy: &Policy, holding: &Holding, secret: &RandomState) -> Option<HeldLease> {
    let (limit, key) = (policy.limit(limit_name(holding))?, Key::from_bytes(&holding.key)?);
    Some(HeldLease {
        limit: limit.name().to_owned(),
        window: holding.rule.split_once('/').map(|(_, window)| window.to_owned()),
        key: policy.show_key(limit, &key, secret),
        tag: tag(policy.key_tag(limit, &key, secret)),
        units: holding.units,
        expires_in_ms: holding.expires_in.as_millis_ceil(),
    })
}
