//! Batches of checks: the store prefetches the memory of the next keys while it works on one.

use tollgate_store::Check;

use super::{Field, Spread, single};
use crate::contest::{self, Contestant, Expected, Run};
use crate::stream::{Stream as _, Text};
use crate::subject::{Offer, Subject as _, Tollgate};

/// Checks per call.
const SIZE: usize = 256;

/// Tollgate's store and the keys of the requests.
pub(super) struct Batches {
    subject: Tollgate,
    keys: Text,
}

impl Batches {
    pub(super) fn new(field: &Field, spread: Spread) -> Self {
        let subject = Tollgate::new(Offer::Ample, field.keys());
        single::acquire(&subject, Offer::Ample, field.each());
        Self { subject, keys: field.requests(spread).clone() }
    }
}

impl Contestant for Batches {
    /// Rounds the number of checks to whole batches, and reports time and answers for that many.
    fn run(&mut self, from: usize, checks: usize) -> Run {
        let Self { subject, keys } = self;
        let stretch = keys.stretch(from, checks);
        let mut batch: Vec<Check<'_>> = Vec::with_capacity(SIZE);
        contest::alone(0..stretch.len().div_ceil(SIZE), |step| {
            let start = stretch.start + step * SIZE;
            // Building the batch is part of the measured work, as it would be in a server.
            batch.clear();
            batch.extend((start..stretch.end.min(start + SIZE)).map(|at| subject.check_of(keys.key(at))));
            subject.take_many(&batch)
        })
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}
