//! A state in one machine word, so that one compare-and-swap updates it.
//!
//! ```text
//! bucket         50 bits  tat, in µs       10 bits  grains        4 bits  generation
//! fixed window   30 bits  end, in s        30 bits  units spent   4 bits  generation
//! ```
//!
//! Times count from the table's base. Fifty bits of microseconds are 35 years, and so are thirty of
//! seconds. States that do not fit live in the wide table and are exact there too: rates whose
//! reduced count is above 1,024, windows of more than half a billion units, and windows that end
//! within a second.
//!
//! Quotas that share their states must live in one table regardless of their numbers. So tallies,
//! which count beyond any limit, and shared buckets with a fraction live in the wide table, and
//! whether a window fits depends only on its length and on other parts of its identity.
//!
//! The generation is that of the slot's tag. A word of another generation belongs to another key,
//! so a swap cannot charge the wrong key.

use tollgate_core::{
    Algorithm, Bucket, BucketState, FixedWindow, FixedWindowState, Span, State, Timestamp, Window,
};

use super::floor::Floor;
use super::hash::RULE_BITS;
use super::instant::{ClockKind, Instant};

/// The word of a slot that is being taken over: no tag has its generation.
pub(super) const CLAIMED: u64 = u64::MAX;
/// The number of generations.
pub(super) const GENERATIONS: u64 = 15;
const GENERATION: u64 = 0xf;
/// The number of bits for the count of a fixed window.
const COUNT_BITS: u32 = 30;
/// The largest count in a word: twice the largest limit that fits. Larger counts saturate.
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Returns whether word and tag have the same generation, and so belong together.
#[inline(always)]
pub(super) const fn belongs(word: u64, tag: u64) -> bool {
    (word ^ tag) & GENERATION == 0
}

/// Shifts ticks to their position in the word of a bucket.
#[inline(always)]
pub(super) const fn shifted(ticks: u64) -> u64 {
    ticks << 14
}

/// Returns the arrival time in the word of a bucket without grains, still shifted.
#[inline(always)]
pub(super) const fn shifted_tat(word: u64) -> u64 {
    word >> 14 << 14
}

/// Returns the word of a bucket without grains, with the generation of `tag`.
#[inline(always)]
pub(super) const fn of_shifted_tat(shifted: u64, tag: u64) -> u64 {
    shifted | tag & GENERATION
}

/// Returns the arrival time in the word of a bucket.
#[inline(always)]
pub(super) fn tat(word: u64, base: Timestamp) -> Timestamp {
    base + Span::from_micros(word >> 14)
}

/// Returns the end of the window in the word of a fixed window.
fn window_end(word: u64, base: Timestamp) -> Timestamp {
    base + Span::from_secs(word >> (COUNT_BITS + 4))
}

/// An algorithm whose state fits a word.
pub(super) trait PackedState: Algorithm<State: Copy> {
    /// Returns whether all states of this quota fit.
    fn fits(&self) -> bool;
    /// Packs the state into a word with the generation of `tag`.
    fn pack(&self, state: Self::State, tag: u64, base: Timestamp) -> u64;
    /// Unpacks the state of a word.
    fn unpack(&self, word: u64, base: Timestamp) -> Self::State;
    /// Extracts this algorithm's state from a generic one.
    fn from_state(state: State) -> Option<Self::State>;
    /// Returns the size class of this quota.
    fn class(&self) -> Class;
    /// Returns the time in which the capacity comes back.
    fn period(&self) -> Span;
    /// The clock of its states.
    const CLOCK: ClockKind;
    /// Returns the same state on a clock that is `by` microseconds ahead.
    fn shifted(state: Self::State, by: i64) -> Self::State;
    /// Converts a state that was carried over at `now` of the clock that never steps to the
    /// time of its own states, where it is `time`.
    fn in_own_time(&self, state: Self::State, now: Timestamp, time: Timestamp) -> Self::State;
}

impl PackedState for Bucket {
    #[inline]
    fn fits(&self) -> bool {
        self.grains_per_tick() <= if self.is_shared() { 1 } else { 1 << 10 }
    }

    #[inline]
    fn pack(&self, state: BucketState, tag: u64, base: Timestamp) -> u64 {
        of_shifted_tat(shifted(state.tat.since(base).as_micros()), tag) | u64::from(state.grains) << 4
    }

    #[inline]
    fn unpack(&self, word: u64, base: Timestamp) -> BucketState {
        BucketState { tat: tat(word, base), grains: (word >> 4) as u32 & 0x3ff }
    }

    fn from_state(state: State) -> Option<BucketState> {
        if let State::Bucket(state) = state { Some(state) } else { None }
    }

    fn class(&self) -> Class {
        // States of shared buckets are read under other numbers than they were written under.
        if self.is_shared() {
            return Class::SHARED;
        }
        let largest = self.max_debt() / 2 / u128::from(self.grains_per_tick());
        Class::of_time(largest as u64)
    }

    fn period(&self) -> Span {
        self.fill_time()
    }

    const CLOCK: ClockKind = ClockKind::Monotonic;

    fn shifted(state: BucketState, _by: i64) -> BucketState {
        state
    }

    fn in_own_time(&self, state: BucketState, _now: Timestamp, _time: Timestamp) -> BucketState {
        state
    }
}

impl PackedState for FixedWindow {
    #[inline]
    fn fits(&self) -> bool {
        let on_the_second = match self.window() {
            Window::Epoch(length) => length.as_micros().is_multiple_of(1_000_000),
            Window::Calendar(_) => true,
            Window::Anchored(_) => false,
        };
        on_the_second && !self.is_large() && !self.is_tally()
    }

    #[inline]
    fn pack(&self, state: FixedWindowState, tag: u64, base: Timestamp) -> u64 {
        // Rounded up: the end of a closed floor or of a carried window may not be on the second.
        let end = state.end.since(base).as_micros().div_ceil(1_000_000);
        end << (COUNT_BITS + 4) | state.count.min(MAX_COUNT) << 4 | tag & GENERATION
    }

    #[inline]
    fn unpack(&self, word: u64, base: Timestamp) -> FixedWindowState {
        FixedWindowState { end: window_end(word, base), count: word >> 4 & MAX_COUNT }
    }

    fn from_state(state: State) -> Option<FixedWindowState> {
        if let State::FixedWindow(state) = state { Some(state) } else { None }
    }

    fn class(&self) -> Class {
        Class::of_units(self.capacity())
    }

    fn period(&self) -> Span {
        self.window().longest()
    }

    // Windows from the first request do not fit.
    const CLOCK: ClockKind = ClockKind::Wall;

    fn shifted(state: FixedWindowState, by: i64) -> FixedWindowState {
        FixedWindowState { end: state.end.shifted(by), ..state }
    }

    fn in_own_time(&self, state: FixedWindowState, now: Timestamp, time: Timestamp) -> FixedWindowState {
        self.realigned(state, now, time)
    }
}

/// How large a quota is, in eight bits: enough to tell a drained key from one
/// that was touched once, and a forgotten one from both, without its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    const UNITS: u8 = 0x80;
    /// Of buckets that share their states: larger than any other.
    const SHARED: Self = Self(0x7f);
    /// Of marks, which are no usage: larger than any bucket but a shared one.
    pub(super) const MARK: Self = Self(0x7e);

    fn of_time(full: u64) -> Self {
        Self(rough(full))
    }

    fn of_units(limit: u64) -> Self {
        Self(rough(limit) | Self::UNITS)
    }

    /// Extracts the class of a tag.
    pub(super) const fn of_tag(tag: u64) -> Self {
        Self((tag >> 8) as u8)
    }

    /// Returns the class as part of a tag.
    pub(super) const fn in_tag(self) -> u64 {
        (self.0 as u64) << 8
    }

    /// Returns the word of the same state with times from another base, if they fit.
    pub(super) fn rebased(self, word: u64, from: Timestamp, to: Timestamp) -> Option<u64> {
        let in_units = self.0 & Self::UNITS != 0;
        let (time, low) =
            if in_units { (window_end(word, from), COUNT_BITS + 4) } else { (tat(word, from), 14) };
        let micros = time.since(to).as_micros();
        let count = if in_units { micros / 1_000_000 } else { micros };
        (time > to && count < 1 << (64 - low)).then(|| count << low | word & ((1 << low) - 1))
    }

    /// Returns how much of a word's quota is spent, and the units that a key would gain if the word
    /// were evicted. `kind` is the kind of its key. Returns `None` for a word without usage: it is
    /// empty, or it has expired on the clock that never steps.
    pub(super) fn usage(self, kind: u16, word: u64, base: Timestamp, at: Instant) -> Option<KeyUsage> {
        let in_units = self.0 & Self::UNITS != 0;
        let (end, clock) = if in_units {
            (window_end(word, base), ClockKind::Wall)
        } else {
            (tat(word, base), ClockKind::Monotonic)
        };
        let time = at.on(clock);
        let is_live = end >= time;
        if !is_live && !in_units {
            return None;
        }
        if self == Self::MARK {
            return Some(KeyUsage { floor: Floor::NONE, clock, worth: Some(0) });
        }
        let left = end.since(time).as_micros();
        let amount = if in_units { word >> 4 & MAX_COUNT } else { left };
        let share = amount.saturating_mul(64).div_ceil(about(self.0 & !Self::UNITS));
        // Of a bucket, the time says all: its grains are less than a tick.
        let (units, until) = if in_units { (amount, end) } else { (1, end + Span::from_micros(1)) };
        let worth = is_live.then(|| share.saturating_mul(left));
        Some(KeyUsage { floor: Floor::new(kind, units, until), clock, worth })
    }
}

/// Keys of one rule have one floor, whatever its numbers: a rule whose limit changes keeps the
/// states of its windows.
pub(super) const fn kind_of(hash: u64) -> u16 {
    (hash & RULE_BITS) as u16
}

/// The usage of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyUsage {
    /// The bound that represents it after its eviction.
    pub(super) floor: Floor,
    /// The clock of the state and of the bound.
    pub(super) clock: ClockKind,
    /// The share of its quota times how long it would still have counted, which orders evictions.
    /// Without the time, a flood of keys that live for a second would evict a key that is drained
    /// for a day, and the floor would be raised for that long. `None` for a window that has closed.
    pub(super) worth: Option<u64>,
}

impl KeyUsage {
    /// Returns whether the usage counts at present.
    pub(super) const fn is_live(&self) -> bool {
        self.worth.is_some()
    }

    /// Returns whether it is a mark, which may be lost.
    pub(super) fn is_mark(&self) -> bool {
        self.floor == Floor::NONE
    }
}

/// Reduces a number to its highest bit and the one below.
fn rough(number: u64) -> u8 {
    let highest = number.max(1).ilog2();
    let half = if highest == 0 { 0 } else { (number >> (highest - 1)) & 1 };
    (highest as u8) << 1 | half as u8
}

/// Returns the smallest number with this reduction.
fn about(rough: u8) -> u64 {
    let highest = u32::from(rough >> 1).min(62);
    (1 << highest) | (u64::from(rough & 1) << highest >> 1)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Rate;

    use super::*;

    const BASE: Timestamp = Timestamp::from_secs(1_000);
    const TAG: u64 = 0xabcd_ef00_1209;

    #[test]
    fn states_round_trip_through_a_word() {
        let bucket = Bucket::new(Rate::per_minute(7)).unwrap();
        let state = BucketState { tat: Timestamp::from_micros(1_234_567_890), grains: 6 };
        let word = bucket.pack(state, TAG, BASE);
        assert_eq!(bucket.unpack(word, BASE), state);
        assert!(belongs(word, TAG) && !belongs(word, TAG + 1));

        let window = FixedWindow::epoch(Rate::per_minute(500_000)).unwrap();
        let state = FixedWindowState { end: Timestamp::from_secs(60_000), count: 1_000_000 };
        assert_eq!(window.unpack(window.pack(state, TAG, BASE), BASE), state);
    }

    #[test]
    fn an_empty_slot_has_expired() {
        let bucket = Bucket::new(Rate::per_minute(7)).unwrap();
        assert!(bucket.unpack(0, BASE).tat <= BASE);
        let at = Instant { now: BASE + Span::from_micros(1), wall_ahead: 0 };
        assert_eq!(Class::of_tag(0).usage(0, 0, BASE, at), None);
    }

    #[test]
    fn quotas_that_do_not_fit_a_word_are_detected() {
        let bucket = |count| Bucket::new(Rate::per_second(count)).unwrap();
        assert!(bucket(3_000_000).fits() && bucket(997).fits());
        assert!(!bucket(1_000_003).fits(), "a prime leaves a million grains to a tick");
        assert!(FixedWindow::epoch(Rate::per_minute((1 << 29) - 1)).unwrap().fits());
        assert!(!FixedWindow::epoch(Rate::per_minute(1 << 29)).unwrap().fits());
        assert!(!FixedWindow::epoch(Rate::new(5, Span::from_millis(1_500))).unwrap().fits());
        assert!(!FixedWindow::anchored(Rate::per_minute(5)).unwrap().fits());
    }

    #[test]
    fn quotas_that_share_their_states_live_in_one_table() {
        for limit in [0, 1, 1 << 40] {
            assert!(!FixedWindow::tally(limit, Window::Epoch(Span::from_secs(1))).unwrap().fits());
        }
        let shared = |count| Bucket::new(Rate::per_second(count)).unwrap().shared();
        assert!(shared(1).fits() && shared(1_000_000).fits());
        assert!(!shared(997).fits() && !shared(1_000_003).fits());
    }

    #[test]
    fn rough_numbers_are_accurate_within_half() {
        for number in [1u64, 2, 3, 5, 10, 999, 60_000_000, 1 << 47] {
            let near = about(rough(number));
            assert!(near <= number && number <= near + near / 2 + 1, "{number} became {near}");
        }
    }
}
