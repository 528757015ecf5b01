//! Keys, in the order of requests.
//!
//! A server has the key of a request at hand, because it has just read it. Keys are therefore stored contiguously, as
//! in a receive buffer, and iterating over them costs almost nothing. A table of a million strings would charge every
//! subject for cache misses of the benchmark.
//!
//! Subjects choose the form of their keys: text, or a value of their own type.

use std::ops::Range;

use crate::zipf::{Rng, Zipf, mixed};

/// Shortest and longest key, in bytes.
pub const LENGTHS: std::ops::RangeInclusive<usize> = 16..=40;

/// Keys in order, in the form of a subject.
pub trait Stream: Sync {
    /// A key.
    type Key: ?Sized + Sync;

    /// Converts keys to the form of the subject.
    fn of(text: &Text) -> Self;

    /// Returns the key at `index`.
    fn key(&self, index: usize) -> &Self::Key;

    /// Returns the number of keys.
    fn len(&self) -> usize;

    /// Returns a range of this many keys. Its start is derived from `from` and kept within the stream.
    fn stretch(&self, from: usize, keys: usize) -> Range<usize> {
        let start = from % (self.len() - keys + 1);
        start..start + keys
    }

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keys as contiguous text.
#[derive(Clone, Debug)]
pub struct Text {
    text: String,
    /// Start of each key, and the end of the last.
    starts: Vec<usize>,
}

impl Text {
    fn collect(ids: impl Iterator<Item = usize>) -> Self {
        let mut this = Self { text: String::new(), starts: vec![0] };
        for id in ids {
            push_key(&mut this.text, id);
            this.starts.push(this.text.len());
        }
        this
    }

    /// Returns each of this many keys once.
    pub fn each(keys: usize) -> Self {
        Self::collect(0..keys)
    }

    /// Returns each key with an id in this range, once.
    pub fn range(ids: Range<usize>) -> Self {
        Self::collect(ids)
    }

    /// Returns a single key.
    pub fn one() -> Self {
        Self::collect(std::iter::once(12_345))
    }

    /// Returns requests for this many keys, Zipf distribution.
    pub fn zipf(keys: usize, requests: usize) -> Self {
        Self::collect(Zipf::new(keys).take(requests))
    }

    /// Returns requests for this many keys, uniform distribution.
    pub fn uniform(keys: usize, requests: usize) -> Self {
        let mut rng = Rng::new();
        Self::collect((0..requests).map(|_| rng.below(keys)))
    }
}

impl Stream for Text {
    type Key = str;

    fn of(text: &Text) -> Self {
        text.clone()
    }

    #[inline]
    fn key(&self, index: usize) -> &str {
        &self.text[self.starts[index]..self.starts[index + 1]]
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }
}

/// Keys as values of a subject's own type.
impl<K: for<'a> From<&'a str> + Sync> Stream for Vec<K> {
    type Key = K;

    fn of(text: &Text) -> Self {
        (0..text.len()).map(|index| K::from(text.key(index))).collect()
    }

    #[inline]
    fn key(&self, index: usize) -> &K {
        &self[index]
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// Writes a key: `key:` and hexadecimal digits. The first sixteen bytes are unique.
#[allow(clippy::cast_possible_truncation, reason = "any sixteen bits will do")]
fn push_key(text: &mut String, id: usize) {
    use std::fmt::Write as _;
    let noise = mixed(id as u64);
    let spread = LENGTHS.end() - LENGTHS.start() + 1;
    let length = LENGTHS.start() + usize::from((noise >> 48) as u16) % spread;
    let end = text.len() + length;
    // Writing to a string cannot fail. Twelve digits distinguish 2^48 ids.
    let _ = write!(text, "key:{:012x}{noise:016x}{:016x}", id & 0xffff_ffff_ffff, mixed(!noise));
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_of_all_lengths() {
        let text = Text::each(10_000);
        let keys: HashSet<&str> = (0..text.len()).map(|index| text.key(index)).collect();
        assert_eq!(keys.len(), 10_000);
        let lengths: HashSet<usize> = keys.iter().map(|key| key.len()).collect();
        assert_eq!(lengths, LENGTHS.collect());
    }
}
