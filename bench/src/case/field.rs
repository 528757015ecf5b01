//! How many keys there are, and the order in which they are asked for.

use std::cell::OnceCell;

use super::Spread;
use crate::stream::Text;

/// The playing field: the same for every subject.
pub struct Field {
    keys: usize,
    requests: usize,
    each: OnceCell<Text>,
    hot: OnceCell<Text>,
    zipf: OnceCell<Text>,
    uniform: OnceCell<Text>,
}

impl Field {
    /// A million keys, for the clock.
    pub const fn full() -> Self {
        Self::new(1_000_000, 2_000_000)
    }

    /// Few keys, for callgrind, under which setting up a million takes minutes.
    /// Tables are as full as with a million, so checks take the same ways.
    pub const fn small() -> Self {
        Self::new(20_000, 50_000)
    }

    const fn new(keys: usize, requests: usize) -> Self {
        Self {
            keys,
            requests,
            each: OnceCell::new(),
            hot: OnceCell::new(),
            zipf: OnceCell::new(),
            uniform: OnceCell::new(),
        }
    }

    /// How many keys there are.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Each key once.
    pub fn each(&self) -> &Text {
        self.each.get_or_init(|| Text::each(self.keys))
    }

    /// The keys of all requests, one after the other.
    pub(super) fn requests(&self, spread: Spread) -> &Text {
        match spread {
            Spread::Hot => self.hot.get_or_init(Text::one),
            Spread::Zipf => self.zipf.get_or_init(|| Text::zipf(self.keys, self.requests)),
            Spread::Uniform => self.uniform.get_or_init(|| Text::uniform(self.keys, self.requests)),
        }
    }
}
