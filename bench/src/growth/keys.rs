//! The in-memory store with more and more keys: each request is for any of them, with equal probability.
//!
//! Every key is known before the measurement, so each decision finds its state; the table is as full as it may be.

use std::{fs, io};

use tollgate_store::Check;

use crate::contest::{self, Contestant, Expected, Run};
use crate::stream::{Stream as _, Text};
use crate::subject::{Offer, Subject as _, Tollgate};

/// Requests before keys repeat in the same order.
const REQUESTS: usize = 2_000_000;
/// Keys whose text is in memory at the same time while a store is filled.
const CHUNK: usize = 100_000;
/// Checks per call.
const BATCH: usize = 256;
/// Memory that a key takes at most, in the store: what must be available for a size.
const BYTES_PER_KEY: u64 = 32;
/// Memory for the requests and for the rest of the machine.
const RESERVE_BYTES: u64 = 1 << 30;

/// Returns the reason why a store of this size does not fit this machine's memory.
pub fn does_not_fit(keys: usize) -> io::Result<Option<String>> {
    let memory = fs::read_to_string("/proc/meminfo")?;
    let available =
        available_bytes(&memory).ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))?;
    let needed = keys as u64 * BYTES_PER_KEY + RESERVE_BYTES;
    let mib = |bytes: u64| bytes >> 20;
    Ok((needed > available).then(|| {
        format!("{keys} keys need {} MiB of memory, and {} MiB are available", mib(needed), mib(available))
    }))
}

fn available_bytes(memory: &str) -> Option<u64> {
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}

/// Returns a store that knows this many keys.
pub fn filled(keys: usize) -> Tollgate {
    let subject = Tollgate::new(Offer::Ample, keys);
    for start in (0..keys).step_by(CHUNK) {
        let text = Text::range(start..keys.min(start + CHUNK));
        let checks: Vec<Check<'_>> = (0..text.len()).map(|index| subject.check_of(text.key(index))).collect();
        subject.take_many(&checks);
    }
    subject
}

/// One decision at a time.
pub(super) struct Single {
    subject: Tollgate,
    requests: Text,
}

impl Single {
    pub(super) fn new(keys: usize) -> Self {
        Self { subject: filled(keys), requests: Text::uniform(keys, REQUESTS.min(10 * keys)) }
    }
}

impl Contestant for Single {
    fn run(&mut self, from: usize, checks: usize) -> Run {
        let Self { subject, requests } = self;
        contest::alone(0..checks, |at| subject.check(requests.key((from + at) % requests.len())).into())
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}

/// Decisions in batches, which fetch the memory of several keys at the same time.
pub(super) struct Batches(Single);

impl Batches {
    pub(super) fn new(keys: usize) -> Self {
        Self(Single::new(keys))
    }
}

impl Contestant for Batches {
    fn run(&mut self, from: usize, checks: usize) -> Run {
        let Single { subject, requests } = &self.0;
        let mut batch: Vec<Check<'_>> = Vec::with_capacity(BATCH);
        contest::alone(0..checks.div_ceil(BATCH), |step| {
            let places =
                (step * BATCH..checks.min((step + 1) * BATCH)).map(|at| (from + at) % requests.len());
            batch.clear();
            batch.extend(places.map(|at| subject.check_of(requests.key(at))));
            subject.take_many(&batch)
        })
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let memory = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available_bytes(memory), Some(20_480_000_000));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_filled_store_knows_all_keys() {
        let usage = filled(5_000).store().usage();
        assert_eq!((usage.keys, usage.evictions), (5_000, 0));
    }
}
