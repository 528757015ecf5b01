//! Subjects take turns, so that noise hits all alike.
//!
//! The machine is shared: another program may take a core at any time. Each
//! round times every subject once, briefly, one after the other; of all rounds
//! the fastest counts. With two threads that would be wrong: a round in which
//! one of them waited for a core had no contention, and looks too good. The
//! kernel says how long a thread waited; the median of the rounds with the
//! least waiting counts.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::stopwatch;

/// Somebody who can be timed.
pub trait Contestant {
    /// Makes so many checks, beginning with the request of this number.
    fn run(&mut self, from: usize, checks: usize) -> Run;

    /// What share of the checks must be admitted.
    fn expected(&self) -> Expected;
}

/// What one stretch of checks came to.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How many were admitted.
    pub admitted: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// How long threads waited for a core, all together. Not known for one thread.
    pub waited: Duration,
}

impl Run {
    /// Share of the time that threads waited for a core.
    fn waiting(&self) -> f64 {
        self.waited.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

/// What a right answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every check passes.
    All,
    /// No check passes.
    None,
}

impl Expected {
    /// How many of these checks were answered wrongly.
    pub fn wrong(self, admitted: usize, checks: usize) -> usize {
        match self {
            Self::All => checks - admitted,
            Self::None => admitted,
        }
    }
}

/// A name and who stands behind it.
pub struct Entry {
    /// As it stands in the table.
    pub subject: &'static str,
    /// Who runs.
    pub contestant: Box<dyn Contestant>,
}

/// How a case is timed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often each subject is timed.
    pub rounds: usize,
    /// Checks in one stretch.
    pub checks: usize,
    /// Whether threads contend.
    pub contended: bool,
}

/// What a subject came to over all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    /// As it stands in the table.
    pub subject: &'static str,
    /// Wall time of one check, in nanoseconds.
    pub ns: f64,
    /// Share of the answers that were wrong.
    pub wrong: f64,
    /// Share of the time that threads waited for a core, in the rounds that count.
    pub waited: f64,
}

/// Lets all entries take turns.
#[allow(clippy::cast_precision_loss, reason = "counts of checks are far below 2^52")]
pub fn hold(mut entries: Vec<Entry>, plan: Plan) -> Vec<Score> {
    let mut runs = vec![Vec::new(); entries.len()];
    for round in 0.. {
        // On a busy machine go on for a while, until there are quiet rounds enough.
        let enough = round >= plan.rounds
            && (!plan.contended || runs.iter().all(|runs| quiet(runs) >= ENOUGH_QUIET_ROUNDS));
        if enough || round >= MAX_ROUNDS_FACTOR * plan.rounds {
            break;
        }
        for (entry, runs) in entries.iter_mut().zip(&mut runs) {
            // The others have emptied the caches since.
            entry.contestant.run((round + 1) * plan.checks, plan.checks / 4);
            runs.push(entry.contestant.run(round * plan.checks, plan.checks));
        }
    }
    let scores = entries.iter().zip(runs).map(|(entry, mut runs)| {
        let expected = entry.contestant.expected();
        let wrong: usize = runs.iter().map(|run| expected.wrong(run.admitted, plan.checks)).sum();
        let wrong = wrong as f64 / (runs.len() * plan.checks) as f64;
        let run = if plan.contended { typical(&mut runs) } else { fastest(&runs) };
        let ns = run.elapsed.as_secs_f64() * 1e9 / plan.checks as f64;
        Score { subject: entry.subject, ns, wrong, waited: run.waiting() }
    });
    scores.collect()
}

/// So many times the rounds planned, and no more.
const MAX_ROUNDS_FACTOR: usize = 3;
/// Waiting less than this share of the time is not waiting.
pub const MAX_WAITING_SHARE: f64 = 0.05;

/// So many quiet rounds are enough.
const ENOUGH_QUIET_ROUNDS: usize = 9;

fn quiet(runs: &[Run]) -> usize {
    runs.iter().filter(|run| run.waiting() < MAX_WAITING_SHARE).count()
}

fn fastest(runs: &[Run]) -> Run {
    *runs.iter().min_by_key(|run| run.elapsed).expect("a plan has rounds")
}

/// The median of the quiet rounds, or of the few that were the least busy.
fn typical(runs: &mut [Run]) -> Run {
    runs.sort_by(|one, other| one.waiting().total_cmp(&other.waiting()));
    let count = quiet(runs).max(ENOUGH_QUIET_ROUNDS).min(runs.len());
    let calm = &mut runs[..count];
    calm.sort_by_key(|run| run.elapsed);
    calm[count / 2]
}

/// The one loop that is timed, and the one that callgrind counts: it finds it
/// by this name, so nothing it calls may bear it too.
///
/// `step` says how many of its checks were admitted.
#[inline(never)]
pub fn measured_loop(steps: Range<usize>, mut step: impl FnMut(usize) -> usize) -> usize {
    let mut admitted = 0;
    for at in steps {
        admitted += step(at);
    }
    admitted
}

/// One thread does all steps.
pub fn alone(steps: Range<usize>, step: impl FnMut(usize) -> usize) -> Run {
    let (admitted, elapsed) = stopwatch::time(|| measured_loop(steps, step));
    Run { admitted, elapsed, waited: Duration::ZERO }
}

/// Two threads share the steps, in pieces, so that both are busy to the end.
pub fn together(steps: Range<usize>, step: impl Fn(usize) -> usize + Sync) -> Run {
    const PIECE: usize = 4_096;
    let (next, gate) = (AtomicUsize::new(steps.start), Barrier::new(2));
    let work = || {
        let mut admitted = 0;
        let before = stopwatch::waited_for_a_core();
        gate.wait();
        let start = stopwatch::mark();
        loop {
            let from = next.fetch_add(PIECE, Ordering::Relaxed);
            if from >= steps.end {
                break;
            }
            admitted += measured_loop(from..steps.end.min(from + PIECE), &step);
        }
        let end = stopwatch::mark();
        (start, end, admitted, stopwatch::waited_for_a_core().saturating_sub(before))
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        (work(), other.join().expect("checks do not panic"))
    });
    let elapsed = one.1.max(other.1) - one.0.min(other.0);
    Run { admitted: one.2 + other.2, elapsed, waited: one.3 + other.3 }
}
