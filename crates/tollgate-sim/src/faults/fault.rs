//! The faults that the world injects.

use std::fmt;

use fastrand::Rng;

use super::clock::TrueTime;
use super::plan::Plan;
use super::trace::Millis;

/// A fault and its time.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) from: TrueTime,
    pub(super) until: TrueTime,
}

/// Which messages a cut link does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    Both,
    ToStore,
    ToNode,
}

/// A kind of fault. `until` ends it; those that happen at one moment happen at `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// A link carries nothing. Messages are held until it is mended (TCP sends them again), or lost.
    Cut { node: usize, shard: usize, ways: Ways, is_held: bool },
    /// A link is cut and mended in turn.
    Flapping { node: usize, shard: usize, period: TrueTime },
    /// Messages take up to this long.
    Slow { node: usize, shard: usize, max_delay: TrueTime },
    /// Some connections break after the store has executed a call.
    AnswersLost { node: usize, shard: usize, per_mille: u64 },
    /// A shard stops, and starts again empty.
    Crash { shard: usize },
    /// A shard stops, and its replica takes over, which had not heard of the last calls.
    Failover { shard: usize, lag: TrueTime },
    /// A shard executes nothing, and then everything that has arrived.
    StorePaused { shard: usize },
    /// The clock of a shard is set.
    StoreStep { shard: usize, by: i64 },
    /// The clock of a shard runs at another rate.
    StoreDrift { shard: usize, ppm: i64 },
    /// A node dies and is started again.
    NodeCrash { node: usize },
    /// A node does nothing, and its clock runs on.
    NodePaused { node: usize },
    /// A node does nothing, and its clock stands still.
    NodeFrozen { node: usize },
    /// The clock of a node runs at another rate.
    NodeRate { node: usize, ppm: i64 },
    /// Leased units reach the store late: the node was stopped between the decision to return them and the call.
    SlowReturns { node: usize, max_delay: TrueTime },
    /// The wall clock of a node is set. Its monotonic clock runs on.
    NodeWallStep { node: usize, by: i64 },
    /// A node gets no more requests, charges its ledger, returns its leases, and is replaced.
    Drain { node: usize },
    /// A node is told a wrong number of nodes.
    WrongNodes { node: usize, nodes: usize },
    /// Another policy comes into force on all nodes.
    Reload { policy: usize },
    /// An operator grants units to a user.
    Grant { node: usize, user: u64, limit: usize, units: u64 },
    /// An operator resets a user.
    Reset { node: usize, user: u64, limit: usize },
    /// A region and the others do not reach each other.
    RegionCut { region: usize, is_held: bool },
    /// Messages between a region and the others take up to this long.
    RegionSlow { region: usize, max_delay: TrueTime },
}

pub(super) type Draw = fn(&Plan, &mut Rng) -> Option<FaultKind>;

impl FaultKind {
    /// Draws one fault of each kind, if the fleet can have it.
    pub(super) const DRAWS: [Draw; 20] = [
        |plan, rng| {
            let (node, shard) = link(plan, rng);
            let ways = [Ways::Both, Ways::ToStore, Ways::ToNode][rng.usize(..3)];
            Some(Self::Cut { node, shard, ways, is_held: rng.bool() })
        },
        |plan, rng| {
            let (node, shard) = link(plan, rng);
            Some(Self::Flapping { node, shard, period: rng.u64(10_000..400_000) })
        },
        |plan, rng| {
            let (node, shard) = link(plan, rng);
            Some(Self::Slow { node, shard, max_delay: rng.u64(10_000..10 * plan.deadline) })
        },
        |plan, rng| {
            let (node, shard) = link(plan, rng);
            Some(Self::AnswersLost { node, shard, per_mille: rng.u64(10..500) })
        },
        |plan, rng| Some(Self::Crash { shard: rng.usize(..plan.all_shards()) }),
        |plan, rng| Some(Self::Failover { shard: rng.usize(..plan.all_shards()), lag: rng.u64(0..800_000) }),
        |plan, rng| Some(Self::StorePaused { shard: rng.usize(..plan.all_shards()) }),
        |plan, rng| {
            let by = [3_600_000_000, -3_600_000_000, 700_000, -700_000, 20_000, -20_000][rng.usize(..6)];
            Some(Self::StoreStep { shard: rng.usize(..plan.all_shards()), by })
        },
        |plan, rng| {
            Some(Self::StoreDrift { shard: rng.usize(..plan.all_shards()), ppm: rng.i64(-1_000..=1_000) })
        },
        |plan, rng| Some(Self::NodeCrash { node: rng.usize(..plan.nodes) }),
        |plan, rng| Some(Self::NodePaused { node: rng.usize(..plan.nodes) }),
        |plan, rng| Some(Self::NodeFrozen { node: rng.usize(..plan.nodes) }),
        |plan, rng| Some(Self::NodeRate { node: rng.usize(..plan.nodes), ppm: rng.i64(-1_000..=1_000) }),
        |plan, rng| {
            let (node, max_delay) = (rng.usize(..plan.nodes), rng.u64(100_000..2_000_000));
            Some(Self::SlowReturns { node, max_delay })
        },
        |plan, rng| {
            let by = [3_600_000_000, -3_600_000_000, -700_000, -200_000][rng.usize(..4)];
            Some(Self::NodeWallStep { node: rng.usize(..plan.nodes), by })
        },
        |plan, rng| (plan.nodes > 1).then(|| Self::Drain { node: rng.usize(..plan.nodes) }),
        |plan, rng| {
            Some(Self::WrongNodes { node: rng.usize(..plan.nodes), nodes: rng.usize(1..=2 * plan.nodes) })
        },
        |_, _| Some(Self::Reload { policy: 0 }),
        |plan, rng| {
            let (node, user, limit) = key(plan, rng);
            Some(Self::Grant { node, user, limit, units: rng.u64(1..50) })
        },
        |plan, rng| {
            let (node, user, limit) = key(plan, rng);
            Some(Self::Reset { node, user, limit })
        },
    ];

    /// Draws one fault of each kind that only a fleet with regions has.
    pub(super) const REGION_DRAWS: [Draw; 2] = [
        |plan, rng| Some(Self::RegionCut { region: rng.usize(..plan.regions.count()), is_held: rng.bool() }),
        |plan, rng| {
            let region = rng.usize(..plan.regions.count());
            Some(Self::RegionSlow { region, max_delay: rng.u64(10_000..2_000_000) })
        },
    ];

    /// Returns whether the fault may keep a node from the store of its own region.
    pub(super) fn parts_from_own_store(&self, node: usize, plan: &Plan) -> bool {
        match *self {
            Self::Cut { node: it, shard, .. }
            | Self::Flapping { node: it, shard, .. }
            | Self::Slow { node: it, shard, .. }
            | Self::AnswersLost { node: it, shard, .. } => it == node && !plan.is_far(node, shard),
            Self::Crash { shard } | Self::Failover { shard, .. } | Self::StorePaused { shard } => {
                !plan.is_far(node, shard)
            }
            Self::NodeCrash { node: it }
            | Self::NodePaused { node: it }
            | Self::NodeFrozen { node: it }
            | Self::SlowReturns { node: it, .. }
            | Self::Drain { node: it } => it == node,
            Self::StoreStep { .. }
            | Self::StoreDrift { .. }
            | Self::NodeRate { .. }
            | Self::NodeWallStep { .. }
            | Self::WrongNodes { .. }
            | Self::Reload { .. }
            | Self::Grant { .. }
            | Self::Reset { .. }
            | Self::RegionCut { .. }
            | Self::RegionSlow { .. } => false,
        }
    }
}

fn link(plan: &Plan, rng: &mut Rng) -> (usize, usize) {
    (rng.usize(..plan.nodes), rng.usize(..plan.all_shards()))
}

fn key(plan: &Plan, rng: &mut Rng) -> (usize, u64, usize) {
    (rng.usize(..plan.nodes), rng.u64(..plan.users), rng.usize(..plan.policies[0].len()))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} ms: {:?}", Millis(self.from), Millis(self.until), self.kind)
    }
}
