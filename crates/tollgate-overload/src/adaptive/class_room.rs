//! The room of priority classes above a learned limit.

/// The room that the classes between the most and the least important one divide into equal steps, as a
/// share of the limit. Of three classes, the middle one has half of it: an eighth of the limit.
const MIDDLE_SHARE: f64 = 0.25;

/// The least room that these classes divide.
const MIN_MIDDLE_ROOM: f64 = 8.0;

/// The room of the most important class above all others, in addition to the limit itself.
const TOP_ROOM: f64 = 16.0;

/// The learned limit, and the lower limit that is in force during a dip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The learned limit.
    pub learned: u32,
    /// The limit in force.
    pub in_force: u32,
    /// The number of requests in flight that no class exceeds.
    pub max: u32,
}

/// Returns the number of requests in flight up to which a class of this rank (0 is the most important)
/// is admitted, for a limit that is shared by several classes.
///
/// The least important class is admitted up to the limit, so it may use all capacity that no other
/// class uses. Each more important class is admitted a little beyond that: while the less important
/// classes are refused, its requests push those in flight above the limit, and none of them is
/// refused as long as they alone fit the capacity. The most important class has the most room, for
/// bursts. The limit itself sinks if the additional requests wait, because it is learned from
/// latency. No class is admitted beyond the maximum, so a limit that has reached it leaves no
/// room.
///
/// A dip bounds all classes but the most important one: with their room, requests would wait in the dip. The most
/// important class keeps the room above the learned limit.
///
/// ```
/// use tollgate_overload::adaptive::{Slots, class_limit};
///
/// let slots = Slots { learned: 100, in_force: 100, max: 1_000 };
/// assert_eq!(class_limit(slots, 0, 1), 100);        // without classes
/// assert_eq!([0, 1, 2].map(|rank| class_limit(slots, rank, 3)), [216, 112, 100]);
/// let dip = Slots { in_force: 70, ..slots };
/// assert_eq!([0, 1, 2].map(|rank| class_limit(dip, rank, 3)), [216, 70, 70]);
/// let bounded = Slots { max: 105, ..slots };
/// assert_eq!([0, 1, 2].map(|rank| class_limit(bounded, rank, 3)), [105, 105, 100]);
/// ```
pub fn class_limit(slots: Slots, rank: u8, classes: usize) -> u32 {
    let below = classes.saturating_sub(1).saturating_sub(usize::from(rank));
    let is_dip = slots.in_force < slots.learned;
    if below == 0 || is_dip && rank > 0 {
        return slots.in_force.min(slots.max);
    }
    let limit = f64::from(slots.learned);
    #[expect(clippy::cast_precision_loss, reason = "numbers of classes are small")]
    let part = below as f64 / (classes - 1) as f64;
    let room = if rank == 0 { limit + TOP_ROOM } else { part * (limit * MIDDLE_SHARE).max(MIN_MIDDLE_ROOM) };
    // Saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of positive numbers")]
    let limit = (limit + room) as u32;
    limit.min(slots.max)
}
