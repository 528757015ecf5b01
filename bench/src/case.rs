//! The cases of the engine benchmark.
//!
//! Cases whose ratio is reported belong to one contest: their entries take turns.

mod batch;
mod field;
mod headers;
mod limiter;
mod single;

pub use self::field::Field;
pub use self::single::acquire;
use crate::contest::{Contestant, Plan};
use crate::subject::{self, Offer, PingoraDefault, Subject as _, Tollgate};

/// A workload for one or more subjects.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name in the table.
    pub name: &'static str,
    /// Subjects that take part.
    pub subjects: &'static [&'static str],
    /// The contest of the case.
    pub contest: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Single checks.
    Single(Spread, Offer, Threads),
    /// Batches of checks.
    Batch(Spread),
    /// `decide_now` of a store, for a batch of this size.
    Bare { checks: usize },
    /// A limiter whose policy has a thousand limits, of which `matching` apply, with or without a watcher. The last of
    /// them has the given offer.
    Limiter { matching: usize, offer: Offer, watched: bool },
    /// The headers of a decision under `matching` limits.
    Headers { matching: usize },
}

/// Distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// One key.
    Hot,
    /// Many keys, Zipf distribution.
    Zipf,
    /// Many keys, uniform distribution.
    Uniform,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    One,
    Two,
}

/// All cases, in the order of the table.
pub const ALL: [Case; 22] = {
    use Kind::{Bare, Batch, Headers, Limiter, Single};
    use Offer::{Ample, Spent};
    use Spread::{Hot, Uniform, Zipf};
    use Threads::{One, Two};
    [
        peers("hot_key", Single(Hot, Ample, One)),
        peers("hot_key_refused", Single(Hot, Spent, One)),
        peers("zipf_1m", Single(Zipf, Ample, One)),
        ours("zipf_1m_batch", "zipf_1m", Batch(Zipf)),
        // A separate contest: a subject with mostly wrong answers is not compared.
        Case {
            subjects: &[PingoraDefault::NAME],
            ..ours("zipf_1m_default_sketch", "zipf_1m", Single(Zipf, Ample, One))
        },
        peers("zipf_1m_refused", Single(Zipf, Spent, One)),
        peers("hot_key_2_threads", Single(Hot, Ample, Two)),
        peers("hot_key_refused_2_threads", Single(Hot, Spent, Two)),
        peers("zipf_1m_2_threads", Single(Zipf, Ample, Two)),
        ours("uniform_1m", "uniform_1m", Single(Uniform, Ample, One)),
        ours("uniform_1m_batch", "uniform_1m", Batch(Uniform)),
        ours("bare_decide", "limiter", Bare { checks: 1 }),
        ours("bare_decide_3", "limiter", Bare { checks: 3 }),
        ours("limiter_1_of_1000", "limiter", Limiter { matching: 1, offer: Ample, watched: false }),
        ours("limiter_3_limits", "limiter", Limiter { matching: 3, offer: Ample, watched: false }),
        ours("limiter_1_of_1000_watched", "limiter", Limiter { matching: 1, offer: Ample, watched: true }),
        ours("limiter_3_limits_watched", "limiter", Limiter { matching: 3, offer: Ample, watched: true }),
        ours("limiter_1_of_1000_refused", "limiter", Limiter { matching: 1, offer: Spent, watched: false }),
        ours("limiter_3_limits_refused", "limiter", Limiter { matching: 3, offer: Spent, watched: false }),
        ours(
            "limiter_1_of_1000_refused_watched",
            "limiter",
            Limiter { matching: 1, offer: Spent, watched: true },
        ),
        ours(
            "limiter_3_limits_refused_watched",
            "limiter",
            Limiter { matching: 3, offer: Spent, watched: true },
        ),
        ours("headers_3_limits", "limiter", Headers { matching: 3 }),
    ]
};

const fn peers(name: &'static str, kind: Kind) -> Case {
    Case { name, subjects: &subject::ALL, contest: name, kind }
}

const fn ours(name: &'static str, contest: &'static str, kind: Kind) -> Case {
    Case { name, subjects: &[Tollgate::NAME], contest, kind }
}

impl Case {
    /// Returns the case of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|case| case.name == name)
    }

    /// Sets up a subject for this case.
    pub fn enter(&self, subject: &str, field: &Field) -> Option<Box<dyn Contestant>> {
        match self.kind {
            Kind::Single(spread, offer, threads) => single::enter(subject, spread, offer, threads, field),
            Kind::Batch(spread) => Some(Box::new(batch::Batches::new(field, spread))),
            Kind::Bare { checks } => Some(Box::new(limiter::Bare::new(checks))),
            Kind::Limiter { matching, offer, watched } => {
                Some(Box::new(limiter::Whole::new(matching, offer, watched)))
            }
            Kind::Headers { matching } => Some(Box::new(headers::Headers::new(matching))),
        }
    }

    /// Returns the timing plan.
    pub const fn plan(&self) -> Plan {
        let (rounds, checks) = match self.kind {
            Kind::Single(Spread::Hot, _, Threads::One) => (15, 300_000),
            Kind::Single(_, _, Threads::Two) => (30, 200_000),
            Kind::Single(..) | Kind::Batch(_) => (9, 400_000),
            Kind::Bare { .. } | Kind::Limiter { .. } | Kind::Headers { .. } => (25, 100_000),
        };
        Plan { rounds, checks, contended: !self.is_countable() }
    }

    /// Whether instructions can be counted: callgrind serializes threads.
    pub const fn is_countable(&self) -> bool {
        !matches!(self.kind, Kind::Single(_, _, Threads::Two))
    }
}
