//! The report of a node: JSON with a version, of a bounded length.

use serde::{Deserialize, Serialize};
use tollgate::store::node_board::{NodeId, NodeRecord};
use tollgate::{Limit, Policy, Store};
use tollgate_api::{FLEET_LATELY_SECONDS, FleetNode, MAX_FLEET_LEASES, NodeCounts};
use tollgate_document::sanitize::printable;
use tollgate_telemetry::{Series, Watcher};

use super::Fleet;
use crate::api::Inner;
use crate::decision_view::mode;
use crate::lease_view::node_leases;
use crate::status::date;

/// The version of the report. A node ignores reports of other versions.
const VERSION: u32 = 1;
/// The maximum length of a text in a report, in characters.
const MAX_TEXT_CHARS: usize = 64;
/// The maximum of a number in a report, far above any count. Sums of it stay exact in JavaScript.
const MAX_COUNT: u64 = 1 << 44;

#[derive(Serialize)]
struct NewReport<'n> {
    v: u32,
    node: &'n FleetNode,
}

#[derive(Deserialize)]
struct StoredReport {
    v: u32,
    node: FleetNode,
}

impl<S: Store> Inner<S> {
    /// Returns the report of this node.
    pub(super) fn node_report(&self, fleet: &Fleet) -> Vec<u8> {
        let node = self.this_node(Some(fleet));
        serde_json::to_vec(&NewReport { v: VERSION, node: &node }).unwrap_or_default()
    }

    /// Returns the state of this node.
    pub(super) fn this_node(&self, fleet: Option<&Fleet>) -> FleetNode {
        let (now, limiter, watcher) = (self.now(), self.limiter.load(), self.watcher.get());
        if let Some(watcher) = watcher {
            watcher.tick(now);
        }
        let series = watcher.map(Watcher::series).unwrap_or_default();
        FleetNode {
            id: fleet.map_or(NodeId(0), |it| it.board.node()).to_string(),
            name: cut(fleet.map_or("this node", |it| &it.name)),
            this: true,
            region: region(limiter.policy()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: date(self.since()),
            age_ms: 0,
            observing: watcher.is_some(),
            mode: mode(self.mode_overrides().modes().everything()).to_owned(),
            store_degraded: limiter.health().is_degraded(),
            window: NodeCounts {
                allowed: series.window.allowed,
                refused: series.window.refused,
                shadow_limited: series.window.shadow_limited,
                degraded: series.window.degraded,
            },
            lately: lately(&series),
            leases: node_leases(&limiter),
        }
    }
}

/// Returns the region of this node, if regions share a limit.
fn region(policy: &Policy) -> Option<String> {
    policy.limits().iter().find_map(Limit::region_share).map(|share| cut(&share.region))
}

/// Returns the counts of the last complete seconds.
fn lately(series: &Series) -> NodeCounts {
    let seconds = usize::try_from(FLEET_LATELY_SECONDS).unwrap_or(usize::MAX);
    let sum = |counts: &[u32]| counts.iter().rev().skip(1).take(seconds).map(|it| u64::from(*it)).sum();
    NodeCounts {
        allowed: sum(&series.allowed),
        refused: sum(&series.refused),
        shadow_limited: sum(&series.shadow_limited),
        degraded: sum(&series.degraded),
    }
}

/// Reads the report of another node. `None` if it is not a report of this version.
pub(super) fn read(record: &NodeRecord) -> Option<FleetNode> {
    let StoredReport { v, mut node } = serde_json::from_slice(&record.record).ok()?;
    if v != VERSION || !["enforce", "shadow", "off"].contains(&&*node.mode) {
        return None;
    }
    node.started_at = node.started_at.parse::<jiff::Timestamp>().ok()?.to_string();
    node.id = record.node.to_string();
    node.this = false;
    node.age_ms = u64::try_from(record.age.as_millis()).unwrap_or(u64::MAX).min(MAX_COUNT);
    (node.name, node.version) = (cut(&node.name), cut(&node.version));
    node.region = node.region.as_deref().map(cut);
    node.leases.limits.truncate(MAX_FLEET_LEASES);
    for lease in &mut node.leases.limits {
        lease.limit = cut(&lease.limit);
        bound([&mut lease.units, &mut lease.expires_in_ms]);
    }
    bound([&mut node.leases.keys, &mut node.leases.units]);
    for counts in [&mut node.window, &mut node.lately] {
        bound([&mut counts.allowed, &mut counts.refused, &mut counts.shadow_limited, &mut counts.degraded]);
    }
    Some(node)
}

fn bound<const COUNTS: usize>(counts: [&mut u64; COUNTS]) {
    for count in counts {
        *count = (*count).min(MAX_COUNT);
    }
}

/// Returns a text that is printable and not long.
fn cut(text: &str) -> String {
    printable(&text.chars().take(MAX_TEXT_CHARS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stored(record: impl Into<Vec<u8>>) -> Option<FleetNode> {
        read(&NodeRecord { node: NodeId(7), age: Duration::from_millis(1_500), record: record.into() })
    }

    fn report(name: &str, version: u32, mode: &str) -> String {
        let node = serde_json::json!({
            "id": "ffffffffffffffff", "name": name, "this": true, "version": "9", "mode": mode,
            "started_at": "2026-01-02T03:04:05Z", "age_ms": 0, "region": "\u{1b}eu", "window": {"allowed": u64::MAX},
            "leases": {"limits": vec![serde_json::json!({"limit": "a"}); 99]}, "later": [1],
        });
        serde_json::json!({"v": version, "node": node}).to_string()
    }

    #[test]
    fn a_report_is_bounded_sanitized_and_has_the_identity_that_the_store_knows() {
        let node = stored(report(&format!("\u{1b}[2J{}", "x".repeat(999)), 1, "enforce")).unwrap();
        assert_eq!((&*node.id, node.this, node.age_ms), ("0000000000000007", false, 1_500));
        assert!(node.name.chars().count() < 100 && !node.name.contains('\u{1b}'), "{}", node.name);
        assert_eq!((node.window.allowed, node.leases.limits.len()), (MAX_COUNT, MAX_FLEET_LEASES));
        assert_eq!(node.started_at, "2026-01-02T03:04:05Z");
        assert!(node.region.is_some_and(|it| it.contains("eu") && !it.contains('\u{1b}')));
    }

    #[test]
    fn entries_that_are_no_reports_are_ignored() {
        let garbage: [Vec<u8>; 9] = [
            b"".into(),
            b"\xff\x00".into(),
            b"[]".into(),
            b"{\"v\":1}".into(),
            b"{\"v\":1,\"node\":{}}".into(),
            b"{\"v\":1,\"node\":{\"window\":{\"allowed\":-1}}}".into(),
            "[".repeat(4_000).into(),
            report("a", 2, "enforce").into(),
            report("a", 1, "<b>").into(),
        ];
        for record in garbage {
            assert_eq!(stored(record.clone()), None, "{:?}", String::from_utf8_lossy(&record));
        }
    }
}
