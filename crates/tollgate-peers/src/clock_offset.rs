//! How far the clock of another node is ahead of the clock of this node.
//!
//! Each node counts on its own monotonic clock, and the times of a charge are by the clock of the
//! owner of the key. A caller sees them by its own clock: a time that it received is converted to its
//! clock, and back when a refund sends it to the owner.
//!
//! The time in a reply was read between the sending of the call and the receipt of the reply, so each
//! call bounds the offset from both sides. The estimate changes only if it is outside of the bounds:
//! it is stable, and a time that is converted back and forth stays the same, nearly always.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tollgate_core::Timestamp;

/// The estimate for one node.
#[derive(Debug, Default)]
pub(crate) struct ClockOffset {
    ahead: AtomicI64,
    is_known: AtomicBool,
}

impl ClockOffset {
    /// Returns the microseconds that the other clock is ahead.
    pub(crate) fn ahead(&self) -> i64 {
        // Relaxed: no other memory depends on it, and any recent estimate is usable.
        self.ahead.load(Ordering::Relaxed)
    }

    /// Takes a reading of the other clock, made between two readings of this one.
    pub(crate) fn observe(&self, sent: Timestamp, read: Timestamp, received: Timestamp) {
        let (least, most) = (read.ahead_of(received), read.ahead_of(sent));
        let is_known = self.is_known.swap(true, Ordering::Relaxed);
        let estimate = self.ahead();
        let next = if is_known { estimate.max(least).min(most.max(least)) } else { least.midpoint(most) };
        if next != estimate {
            self.ahead.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_stays_while_replies_agree_with_it() {
        let (offset, at) = (ClockOffset::default(), Timestamp::from_micros);
        offset.observe(at(1_000), at(501_100), at(1_200));
        assert_eq!(offset.ahead(), 500_000);
        // A slow reply agrees with any offset from 498,000 to 500,900.
        offset.observe(at(2_000), at(502_900), at(4_900));
        assert_eq!(offset.ahead(), 500_000);
        // The node was restarted, and its clock started again.
        offset.observe(at(5_000), at(7_100), at(5_200));
        assert_eq!(offset.ahead(), 2_100);
        offset.observe(at(6_000), at(4_000), at(6_000));
        assert_eq!(offset.ahead(), -2_000);
    }
}
