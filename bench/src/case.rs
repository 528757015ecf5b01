//! What subjects are put to.
//!
//! Cases whose ratio is of interest are held in one contest: their entries take
//! turns, whoever they belong to.

mod batch;
mod field;
mod limiter;
mod single;

pub use self::field::Field;
pub use self::single::acquire;
use crate::contest::{Contestant, Plan};
use crate::subject::{self, Offer, PingoraDefault, Subject as _, Tollgate};

/// One line of questions for one or more subjects.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// As it stands in the table.
    pub name: &'static str,
    /// Who takes part.
    pub subjects: &'static [&'static str],
    /// Which contest it is part of.
    pub contest: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One check after the other.
    Single(Spread, Offer, Threads),
    /// Batches of checks.
    Batch(Spread),
    /// A store's `decide_now`, for a batch of so many.
    Bare { checks: usize },
    /// A limiter whose policy has a thousand limits, so many of which apply, and whether
    /// a watcher is told.
    Limiter { matching: usize, watched: bool },
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// One.
    Hot,
    /// Many, by Zipf.
    Zipf,
    /// Many, each as likely as any.
    Uniform,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    One,
    Two,
}

/// All cases, in the order of the table.
pub const ALL: [Case; 17] = {
    use Kind::{Bare, Batch, Limiter, Single};
    use Offer::{Ample, Spent};
    use Spread::{Hot, Uniform, Zipf};
    use Threads::{One, Two};
    [
        peers("hot_key", Single(Hot, Ample, One)),
        peers("hot_key_refused", Single(Hot, Spent, One)),
        peers("zipf_1m", Single(Zipf, Ample, One)),
        ours("zipf_1m_batch", "zipf_1m", Batch(Zipf)),
        // Apart: the time of answers that are no use is no peer's time.
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
        ours("limiter_1_of_1000", "limiter", Limiter { matching: 1, watched: false }),
        ours("limiter_3_limits", "limiter", Limiter { matching: 3, watched: false }),
        ours("limiter_1_of_1000_watched", "limiter", Limiter { matching: 1, watched: true }),
        ours("limiter_3_limits_watched", "limiter", Limiter { matching: 3, watched: true }),
    ]
};

const fn peers(name: &'static str, kind: Kind) -> Case {
    Case { name, subjects: &subject::ALL, contest: name, kind }
}

const fn ours(name: &'static str, contest: &'static str, kind: Kind) -> Case {
    Case { name, subjects: &[Tollgate::NAME], contest, kind }
}

impl Case {
    /// The case of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|case| case.name == name)
    }

    /// Sets a subject up for this case.
    pub fn enter(&self, subject: &str, field: &Field) -> Option<Box<dyn Contestant>> {
        match self.kind {
            Kind::Single(spread, offer, threads) => single::enter(subject, spread, offer, threads, field),
            Kind::Batch(spread) => Some(Box::new(batch::Batches::new(field, spread))),
            Kind::Bare { checks } => Some(Box::new(limiter::Bare::new(checks))),
            Kind::Limiter { matching, watched } => Some(Box::new(limiter::Whole::new(matching, watched))),
        }
    }

    /// How it is timed.
    pub const fn plan(&self) -> Plan {
        let (rounds, checks) = match self.kind {
            Kind::Single(Spread::Hot, _, Threads::One) => (15, 300_000),
            Kind::Single(_, _, Threads::Two) => (30, 200_000),
            Kind::Single(..) | Kind::Batch(_) => (9, 400_000),
            Kind::Bare { .. } | Kind::Limiter { .. } => (25, 100_000),
        };
        Plan { rounds, checks, contended: !self.is_countable() }
    }

    /// Whether its instructions are worth counting: threads take turns under callgrind.
    pub const fn is_countable(&self) -> bool {
        !matches!(self.kind, Kind::Single(_, _, Threads::Two))
    }
}
