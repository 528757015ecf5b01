//! Times subjects in turns, so that noise affects all of them.
//!
//! The machine is shared: another program may take a core at any time. Each round times every subject once, briefly;
//! the fastest round counts. With two threads the fastest round would be wrong: if one thread waited for a core,
//! there was no contention, and the time is too good. The kernel reports how long a thread waited, and the median of
//! the rounds with the least waiting counts.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::stopwatch;

/// A subject that can be timed.
pub trait Contestant {
    /// Makes this many checks, starting at the request with this index.
    fn run(&mut self, from: usize, checks: usize) -> Run;

    /// Returns the expected verdict of the checks.
    fn expected(&self) -> Expected;
}

/// The result of one timed run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Number of admitted checks.
    pub admitted: usize,
    /// Wall time.
    pub elapsed: Duration,
    /// Total time that threads waited for a core. Zero for one thread.
    pub waited: Duration,
}

impl Run {
    /// Returns the share of the time that threads waited for a core.
    fn waiting(&self) -> f64 {
        self.waited.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

/// The expected verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every check is admitted.
    All,
    /// No check is admitted.
    None,
}

impl Expected {
    /// Returns the number of wrong answers.
    pub fn wrong(self, admitted: usize, checks: usize) -> usize {
        match self {
            Self::All => checks - admitted,
            Self::None => admitted,
        }
    }
}

/// A named contestant.
pub struct Entry {
    /// Name in the table.
    pub subject: &'static str,
    /// The contestant.
    pub contestant: Box<dyn Contestant>,
}

/// The timing plan of a case.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of rounds.
    pub rounds: usize,
    /// Checks per round.
    pub checks: usize,
    /// Whether threads contend.
    pub contended: bool,
}

/// The result of a subject over all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    /// Name in the table.
    pub subject: &'static str,
    /// Wall time of one check, in nanoseconds.
    pub ns: f64,
    /// Share of wrong answers.
    pub wrong: f64,
    /// Share of the time that threads waited for a core, in the rounds that count.
    pub waited: f64,
}

/// Times all entries in turns.
#[allow(clippy::cast_precision_loss, reason = "counts of checks are far below 2^52")]
pub fn hold(mut entries: Vec<Entry>, plan: Plan) -> Vec<Score> {
    let mut runs = vec![Vec::new(); entries.len()];
    for round in 0.. {
        // On a busy machine, continue until there are enough quiet rounds.
        let enough = round >= plan.rounds
            && (!plan.contended || runs.iter().all(|runs| quiet(runs) >= ENOUGH_QUIET_ROUNDS));
        if enough || round >= MAX_ROUNDS_FACTOR * plan.rounds {
            break;
        }
        for (entry, runs) in entries.iter_mut().zip(&mut runs) {
            // Warm up: the other entries have evicted the caches.
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

/// The most rounds, as a multiple of the plan.
const MAX_ROUNDS_FACTOR: usize = 3;
/// The largest share of waiting time in a quiet round.
pub const MAX_WAITING_SHARE: f64 = 0.05;

/// Number of quiet rounds that suffices.
const ENOUGH_QUIET_ROUNDS: usize = 9;

fn quiet(runs: &[Run]) -> usize {
    runs.iter().filter(|run| run.waiting() < MAX_WAITING_SHARE).count()
}

fn fastest(runs: &[Run]) -> Run {
    *runs.iter().min_by_key(|run| run.elapsed).expect("a plan has rounds")
}

/// Returns the median of the quiet rounds, or of the few least busy ones.
fn typical(runs: &mut [Run]) -> Run {
    runs.sort_by(|one, other| one.waiting().total_cmp(&other.waiting()));
    let count = quiet(runs).max(ENOUGH_QUIET_ROUNDS).min(runs.len());
    let calm = &mut runs[..count];
    calm.sort_by_key(|run| run.elapsed);
    calm[count / 2]
}

/// The loop that is timed and that callgrind counts. Callgrind identifies it by name, so no callee may have the same
/// name.
///
/// `step` returns the number of admitted checks.
#[inline(never)]
pub fn measured_loop(steps: Range<usize>, mut step: impl FnMut(usize) -> usize) -> usize {
    let mut admitted = 0;
    for at in steps {
        admitted += step(at);
    }
    admitted
}

/// Runs all steps on one thread.
pub fn alone(steps: Range<usize>, step: impl FnMut(usize) -> usize) -> Run {
    let (admitted, elapsed) = stopwatch::time(|| measured_loop(steps, step));
    Run { admitted, elapsed, waited: Duration::ZERO }
}

/// Runs the steps on two threads, in chunks, so that both are busy until the end.
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
