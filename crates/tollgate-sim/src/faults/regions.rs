//! The regions of a simulated fleet: nodes and shards of their own, and shares of the limits.
//!
//! The nodes take turns: node `n` is in region `n % regions`. Each region has the same number of shards, and a key is on
//! one shard of each region.

use std::fmt::Write as _;

use fastrand::Rng;

use super::clock::TrueTime;
use super::plan::{Counting, LimitPlan};

/// The deadline of a call to another region.
pub(super) const FAR_DEADLINE: TrueTime = 1_000_000;

/// Shares are multiples of this, so that the shares of numbers that are multiples of ten are whole.
const SHARE_STEP: u64 = 10;

/// The regions of a fleet.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    /// The share of each region in percent.
    shares: Vec<u64>,
    /// Whether keys that run short borrow from other regions.
    borrows: bool,
    /// The time of a message between two regions.
    pub(super) distance: TrueTime,
}

impl Regions {
    /// A fleet without regions.
    pub(super) fn one() -> Self {
        Self { shares: vec![100], borrows: false, distance: 0 }
    }

    /// Draws regions for a quarter of the seeds.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        if rng.u8(..4) > 0 {
            return Self::one();
        }
        let shares: &[u64] =
            [&[50, 50][..], &[70, 30], &[90, 10], &[50, 30, 20], &[40, 30, 30]][rng.usize(..5)];
        Self { shares: shares.to_vec(), borrows: rng.u8(..8) > 0, distance: rng.u64(500..40_000) }
    }

    pub(super) fn count(&self) -> usize {
        self.shares.len()
    }

    /// Returns whether limits are split.
    pub(super) fn are_several(&self) -> bool {
        self.shares.len() > 1
    }

    /// Returns the region of a node.
    pub(super) fn of_node(&self, node: usize) -> usize {
        node % self.count()
    }

    /// Returns the number of nodes in a region of a fleet.
    pub(super) fn nodes_in(&self, region: usize, nodes: usize) -> usize {
        (0..nodes).filter(|&node| self.of_node(node) == region).count()
    }

    /// Returns the largest share.
    pub(super) fn max_share(&self) -> u64 {
        self.shares.iter().copied().max().unwrap_or(100)
    }

    /// Returns the share of a region in a limit.
    pub(super) fn share(&self, counting: Counting, region: usize) -> Counting {
        let part = |number: u64| number * self.shares[region] / 100;
        match counting {
            Counting::Bucket { count, burst } => Counting::Bucket { count: part(count), burst: part(burst) },
            Counting::Window { limit, period } => Counting::Window { limit: part(limit), period },
            slots @ Counting::Slots { .. } => slots,
        }
    }

    /// Makes the numbers of a limit such that all shares are whole.
    pub(super) fn fit(&self, limit: &mut LimitPlan) {
        if !self.are_several() {
            return;
        }
        let whole = |number: u64| number.div_ceil(SHARE_STEP) * SHARE_STEP;
        limit.is_split = true;
        limit.counting = match limit.counting {
            Counting::Bucket { count, burst } => {
                Counting::Bucket { count: whole(count), burst: whole(burst) }
            }
            Counting::Window { limit, period } => Counting::Window { limit: whole(limit), period },
            slots @ Counting::Slots { .. } => slots,
        };
    }

    /// Returns the section of a policy file.
    pub(super) fn text(&self, here: usize) -> String {
        let mut text = String::new();
        if self.are_several() {
            let each =
                |write: &dyn Fn(usize) -> String| (0..self.count()).map(write).collect::<Vec<_>>().join(", ");
            let shares = each(&|region| format!("{}: {}%", name(region), self.shares[region]));
            let stores = each(&|region| format!("{0}: redis://{0}", name(region)));
            let stores = if self.borrows { format!(", stores: {{{stores}}}") } else { String::new() };
            let _never = writeln!(text, "regions: {{here: {}, shares: {{{shares}}}{stores}}}", name(here));
        }
        text
    }
}

/// Returns the name of a region.
pub(super) fn name(region: usize) -> String {
    format!("r{region}")
}
