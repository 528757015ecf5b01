//! Marks in the table of words: a mark records that the state of a key under one rule was carried
//! over to another rule, until that state expires.
//!
//! A mark is no usage. It takes a slot only where it evicts no state, it is the first to be evicted,
//! and it raises no floor. Without its mark, a state is carried over again when the key has no usage
//! under the present rule, which is stricter, never looser.

use tollgate_core::Timestamp;

use super::line::swap;
use super::sync::{Ordering, lock};
use super::table::Table;
use super::word::{self, Class};

impl Table {
    /// Stores a mark until `ends`, in place of its present one. Stores nothing if the table is full
    /// of states.
    pub(super) fn mark(&self, hash: u64, ends: Timestamp, now: Timestamp) {
        let word_for = |tag| word::of_shifted_tat(word::shifted(ends.since(self.base).as_micros()), tag);
        let _inserting = lock(self.stripe(hash));
        let mut lines = self.lines_of(hash).into_iter();
        let renewed = lines.find_map(|line| {
            self.lines[line].find(hash, |slot, tag| {
                let word = slot.load(Ordering::Acquire);
                let is_same = word::belongs(word, tag);
                (is_same && swap(slot, word, word_for(tag)).is_ok()).then_some(())
            })
        });
        if renewed.is_some() {
            return;
        }
        if let Some(vacancy) = self.vacancy(hash, now).filter(|it| !it.evicts()) {
            self.claim(&vacancy, hash, Class::MARK, now, word_for);
        }
    }

    /// Returns the end of a mark, if the table holds it.
    pub(super) fn marked_until(&self, hash: u64) -> Option<Timestamp> {
        let mut lines = self.lines_of(hash).into_iter();
        lines.find_map(|line| self.tat_in(line, hash))
    }
}
