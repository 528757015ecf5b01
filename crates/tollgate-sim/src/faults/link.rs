//! The link between a node and a shard.

use fastrand::Rng;

use super::clock::TrueTime;
use super::fault::Ways;
use super::wire::CallId;

/// The delay of a message on a healthy link, in microseconds.
const DELAY_US: std::ops::Range<u64> = 150..900;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToStore,
    ToNode,
}

/// The fate of a message on a link.
pub(super) enum Transit {
    After(TrueTime),
    Held,
    Lost,
    /// The connection breaks after the call was executed.
    Broken(TrueTime),
}

/// The link between a node and a shard.
#[derive(Default)]
pub(super) struct Link {
    /// The time that a message takes at least.
    distance: TrueTime,
    /// The cuts in force: which ways, and whether messages are held.
    cuts: Vec<(usize, Ways, bool)>,
    slow: Vec<(usize, TrueTime)>,
    lossy: Vec<(usize, u64)>,
    held: Vec<(Direction, CallId)>,
}

impl Link {
    pub(super) fn new(distance: TrueTime) -> Self {
        Self { distance, ..Self::default() }
    }

    pub(super) fn cut(&mut self, fault: usize, ways: Ways, is_held: bool) {
        self.cuts.push((fault, ways, is_held));
    }

    pub(super) fn slow_down(&mut self, fault: usize, max_delay: TrueTime) {
        self.slow.push((fault, max_delay));
    }

    pub(super) fn lose_answers(&mut self, fault: usize, per_mille: u64) {
        self.lossy.push((fault, per_mille));
    }

    /// Ends a fault. Returns the messages that can travel again.
    pub(super) fn mend(&mut self, fault: usize) -> Vec<(Direction, CallId)> {
        self.cuts.retain(|it| it.0 != fault);
        self.slow.retain(|it| it.0 != fault);
        self.lossy.retain(|it| it.0 != fault);
        let held = std::mem::take(&mut self.held);
        let (kept, released) = held.into_iter().partition(|(direction, _)| self.is_cut(*direction));
        self.held = kept;
        released
    }

    pub(super) fn is_cut(&self, direction: Direction) -> bool {
        self.cuts.iter().any(|(_, ways, _)| match ways {
            Ways::Both => true,
            Ways::ToStore => direction == Direction::ToStore,
            Ways::ToNode => direction == Direction::ToNode,
        })
    }

    /// Takes a message.
    pub(super) fn carry(&mut self, direction: Direction, call: CallId, rng: &mut Rng) -> Transit {
        let mut delay = self.distance + rng.u64(DELAY_US);
        for (_, max_delay) in &self.slow {
            delay += rng.u64(..*max_delay);
        }
        let breaks = self.lossy.iter().any(|(_, per_mille)| rng.u64(..1_000) < *per_mille);
        if self.is_cut(direction) {
            if self.cuts.iter().any(|(_, _, is_held)| *is_held) {
                self.held.push((direction, call));
                return Transit::Held;
            }
            return Transit::Lost;
        }
        if breaks && direction == Direction::ToNode {
            return Transit::Broken(delay);
        }
        Transit::After(delay)
    }
}
