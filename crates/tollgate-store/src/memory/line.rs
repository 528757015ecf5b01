//! One cache line of the table: four slots, each a tag and a state word.
//!
//! The hot operations are here: finding a slot, and paying out of a bucket. The table decides when
//! a slot may be taken over.

use tollgate_core::TickBucket;

use super::sync::{AtomicU64, Ordering, back_off};
use super::word;

/// The number of slots in a line.
pub(super) const WAYS: usize = 4;

/// One cache line.
#[repr(C, align(64))]
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
pub(super) struct Line {
    pub(super) tags: [AtomicU64; WAYS],
    pub(super) words: [AtomicU64; WAYS],
}

impl Line {
    /// Visits the state word of this hash, with its tag. Continues if the visitor finds that the
    /// slot has been taken over.
    #[inline(always)]
    pub(super) fn find<R>(
        &self,
        hash: u64,
        mut visit: impl FnMut(&AtomicU64, u64) -> Option<R>,
    ) -> Option<R> {
        for way in 0..WAYS {
            // Acquire: the state that is read next is at least as new as this tag.
            let tag = self.tags[way].load(Ordering::Acquire);
            if tag >> 16 == tag_of(hash)
                && let Some(found) = visit(&self.words[way], tag)
            {
                return Some(found);
            }
        }
        None
    }
}

/// A payment out of a bucket of whole ticks, in the representation of a word.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    pub(super) price: u64,
    pub(super) now: u64,
    pub(super) full: u64,
}

impl Line {
    /// Pays if this hash is present. Returns the arrival time after that, shifted as in a word, and
    /// whether it was paid.
    #[inline(always)]
    pub(super) fn pay(&self, hash: u64, charge: Charge) -> Option<(u64, bool)> {
        self.find(hash, |slot, tag| {
            // Acquire: a charge made elsewhere is seen with everything that precedes it.
            let mut word = slot.load(Ordering::Acquire);
            while word::belongs(word, tag) {
                let tat = word::shifted_tat(word);
                let Some(after) = TickBucket::pay(tat, charge.price, charge.now, charge.full) else {
                    return Some((tat, false));
                };
                if swap(slot, word, word::of_shifted_tat(after, tag)).is_ok() {
                    return Some((after, true));
                }
                back_off();
                word = slot.load(Ordering::Acquire);
            }
            None
        })
    }
}

/// Returns 48 bits of the hash, never zero: an empty slot has tag zero.
#[inline]
pub(super) fn tag_of(hash: u64) -> u64 {
    (hash & 0xffff_ffff_ffff).max(1)
}

/// The bits of the hash that a slot's tag holds.
pub(super) const fn hash_of(tag: u64) -> u64 {
    tag >> 16
}

/// Replaces a word, unless another thread has changed it: then the error is the present word. An equal word
/// is not written.
///
/// Acquire and release: the replaced state was seen, and its replacement is published with
/// everything before it.
#[inline(always)]
pub(super) fn swap(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
    if from == to {
        return Ok(());
    }
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
}

#[cfg(not(loom))]
pub(super) fn zeroed(lines: usize) -> Box<[Line]> {
    // Untouched pages are not committed by the operating system.
    bytemuck::allocation::zeroed_slice_box(lines)
}

#[cfg(loom)]
pub(super) fn zeroed(lines: usize) -> Box<[Line]> {
    let row = || std::array::from_fn(|_| AtomicU64::new(0));
    (0..lines).map(|_| Line { tags: row(), words: row() }).collect()
}
