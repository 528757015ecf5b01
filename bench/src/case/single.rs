//! Single checks, on one key or many, by one thread or two.

use std::hint::black_box;

use super::{Field, Spread, Threads};
use crate::contest::{self, Contestant, Expected, Run};
use crate::stream::{Stream, Text};
use crate::subject::{self, Offer, Subject, Visitor};

pub(super) fn enter(
    subject: &str,
    spread: Spread,
    offer: Offer,
    threads: Threads,
    field: &Field,
) -> Option<Box<dyn Contestant>> {
    subject::visit(subject, Enter { spread, offer, threads, field })
}

struct Enter<'f> {
    spread: Spread,
    offer: Offer,
    threads: Threads,
    field: &'f Field,
}

impl Visitor for Enter<'_> {
    type Out = Box<dyn Contestant>;

    fn visit<S: Subject>(self) -> Self::Out {
        let Self { spread, offer, threads, field } = self;
        let known = match spread {
            Spread::Hot => field.requests(spread),
            Spread::Zipf | Spread::Uniform => field.each(),
        };
        Box::new(Single::<S>::new(offer, threads, known, field.requests(spread)))
    }
}

/// A subject and the keys of the requests.
struct Single<S: Subject> {
    subject: S,
    keys: S::Keys,
    offer: Offer,
    threads: Threads,
}

impl<S: Subject> Single<S> {
    fn new(offer: Offer, threads: Threads, known: &Text, requests: &Text) -> Self {
        let subject = S::new(offer, known.len());
        acquire(&subject, offer, known);
        Self { subject, keys: S::Keys::of(requests), offer, threads }
    }
}

/// Presents every key to a subject, and exhausts the allowance if the offer requires it. Returns the number of keys
/// whose first request was refused, which should be zero.
pub fn acquire<S: Subject>(subject: &S, offer: Offer, known: &Text) -> usize {
    let more = match offer {
        Offer::Ample => 0,
        Offer::Spent => subject::SPENT_BURST - 1,
    };
    let keys = S::Keys::of(known);
    let mut refused = 0;
    for index in 0..keys.len() {
        refused += usize::from(!subject.check(keys.key(index)));
        for _ in 0..more {
            black_box(subject.check(keys.key(index)));
        }
    }
    refused
}

impl<S: Subject> Contestant for Single<S> {
    fn run(&mut self, from: usize, checks: usize) -> Run {
        let Self { subject, keys, threads, .. } = self;
        if keys.len() == 1 {
            let key = keys.key(0);
            return match threads {
                Threads::One => contest::alone(0..checks, |_| subject.check_alone(black_box(key)).into()),
                Threads::Two => contest::together(0..checks, |_| subject.check(black_box(key)).into()),
            };
        }
        let steps = keys.stretch(from, checks);
        match threads {
            Threads::One => contest::alone(steps, |at| subject.check_alone(keys.key(at)).into()),
            Threads::Two => contest::together(steps, |at| subject.check(keys.key(at)).into()),
        }
    }

    fn expected(&self) -> Expected {
        match self.offer {
            Offer::Ample => Expected::All,
            Offer::Spent => Expected::None,
        }
    }
}
