//! The number of keys, and the order of requests.

use std::cell::OnceCell;

use super::Spread;
use crate::stream::Text;

/// Input that is the same for every subject.
pub struct Field {
    keys: usize,
    requests: usize,
    each: OnceCell<Text>,
    hot: OnceCell<Text>,
    zipf: OnceCell<Text>,
    uniform: OnceCell<Text>,
}

impl Field {
    /// A million keys, for timing.
    pub const fn full() -> Self {
        Self::new(1_000_000, 2_000_000)
    }

    /// Few keys, for callgrind, which takes minutes to set up a million. Tables have the same load factor as with a
    /// million, so checks take the same paths.
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

    /// Returns the number of keys.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Returns each key once.
    pub fn each(&self) -> &Text {
        self.each.get_or_init(|| Text::each(self.keys))
    }

    /// Returns the keys of all requests, in order.
    pub(super) fn requests(&self, spread: Spread) -> &Text {
        match spread {
            Spread::Hot => self.hot.get_or_init(Text::one),
            Spread::Zipf => self.zipf.get_or_init(|| Text::zipf(self.keys, self.requests)),
            Spread::Uniform => self.uniform.get_or_init(|| Text::uniform(self.keys, self.requests)),
        }
    }
}
