//! The last five minutes of one limit, in steps of five seconds.
//!
//! A limit without requests in that time takes no memory for its history.

use crate::limit_counter::{LimitCounts, NO_SHARE, NUMBERS};

/// The length of a step in seconds.
pub(crate) const STEP_SECS: u64 = 5;
/// The number of steps that are kept.
pub(crate) const MAX_STEPS: usize = 60;

/// The recent history of one limit in steps of five seconds, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSeries {
    /// The last second of the last step, since 1970. That step is still in progress.
    pub until: u64,
    /// Decisions in which the limit had room.
    pub allowed: Vec<u32>,
    /// Decisions in which the limit refused, or would have refused in shadow mode.
    pub limited: Vec<u32>,
    /// The smallest share of an allowance that any key had left, in per mille; `None` if the limit took
    /// part in no decision.
    pub remaining: Vec<Option<u16>>,
}

/// The counts of one limit in the last five minutes. See [`Watcher::tick`](crate::Watcher::tick).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitWindow {
    /// The decisions in the window.
    pub counts: LimitCounts,
    /// The smallest share of an allowance that any key had left, in per mille, rounded up so that zero
    /// means that nothing was left. `None` if the limit took part in no decision.
    pub remaining_min: Option<u16>,
}

/// The recent history of one limit.
#[derive(Default)]
pub(crate) struct LimitHistory {
    /// The numbers at the end of the last step.
    before: [u64; NUMBERS],
    /// `None` while the history is empty.
    steps: Option<Box<Steps>>,
}

struct Steps {
    /// The index of the next step, which holds the oldest one.
    next: usize,
    /// The number of most recent steps without a decision.
    quiet: usize,
    ring: [Step; MAX_STEPS],
}

#[derive(Clone, Copy)]
struct Step {
    numbers: [u32; NUMBERS],
    least: u16,
}

const EMPTY: Step = Step { numbers: [0; NUMBERS], least: NO_SHARE };

impl Step {
    fn new(added: [u64; NUMBERS], least: u16) -> Self {
        Self { numbers: added.map(|number| u32::try_from(number).unwrap_or(u32::MAX)), least }
    }

    fn is_empty(&self) -> bool {
        self.least == NO_SHARE && self.numbers.iter().all(|&number| number == 0)
    }
}

impl Steps {
    const fn new() -> Self {
        Self { next: 0, quiet: 0, ring: [EMPTY; MAX_STEPS] }
    }

    fn push(&mut self, step: Step) {
        self.ring[self.next] = step;
        self.next = (self.next + 1) % MAX_STEPS;
    }

    /// Iterates over the steps, the oldest first.
    fn iter(&self) -> impl Iterator<Item = &Step> {
        let (newer, older) = self.ring.split_at(self.next);
        older.iter().chain(newer)
    }
}

impl LimitHistory {
    /// Ends `steps` steps. The change since the last call belongs to the first of them.
    pub(crate) fn step(&mut self, steps: u64, numbers: [u64; NUMBERS], least: u16) {
        let step = Step::new(difference(numbers, self.before), least);
        self.before = numbers;
        let passed = usize::try_from(steps).unwrap_or(MAX_STEPS).min(MAX_STEPS);
        if step.is_empty() && self.steps.is_none() {
            return;
        }
        let kept = self.steps.get_or_insert_with(|| Box::new(Steps::new()));
        kept.push(step);
        (1..passed).for_each(|_| kept.push(EMPTY));
        kept.quiet = if step.is_empty() { kept.quiet + passed } else { passed.saturating_sub(1) };
        if kept.quiet >= MAX_STEPS {
            self.steps = None;
        }
    }

    fn kept(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().flat_map(|steps| steps.iter())
    }

    /// Returns the counts of the last `steps` finished steps and of the current one.
    pub(crate) fn window(&self, steps: usize, numbers: [u64; NUMBERS], least: u16) -> LimitWindow {
        let mut sums = difference(numbers, self.before);
        let kept = || self.kept().skip(MAX_STEPS.saturating_sub(steps));
        for step in kept() {
            for (sum, &number) in sums.iter_mut().zip(&step.numbers) {
                *sum += u64::from(number);
            }
        }
        let least = kept().map(|step| step.least).fold(least, u16::min);
        LimitWindow { counts: LimitCounts::of(sums), remaining_min: (least != NO_SHARE).then_some(least) }
    }

    /// Returns all steps, with the current one last.
    pub(crate) fn series(&self, until: u64, numbers: [u64; NUMBERS], least: u16) -> LimitSeries {
        let nothing = [EMPTY; MAX_STEPS];
        let present = Step::new(difference(numbers, self.before), least);
        let over = self.steps.as_ref().map_or(nothing, |steps| {
            let mut all = nothing;
            all.iter_mut().zip(steps.iter()).for_each(|(to, step)| *to = *step);
            all
        });
        let steps: Vec<Step> = over.into_iter().skip(1).chain([present]).collect();
        let counts = |step: &Step| LimitCounts::of(step.numbers.map(u64::from));
        let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        LimitSeries {
            until,
            allowed: steps.iter().map(|step| narrow(counts(step).allowed)).collect(),
            limited: steps
                .iter()
                .map(|step| narrow(counts(step).limited + counts(step).shadow_limited))
                .collect(),
            remaining: steps.iter().map(|step| (step.least != NO_SHARE).then_some(step.least)).collect(),
        }
    }

    /// Whether the history takes memory.
    #[cfg(test)]
    pub(crate) fn is_kept(&self) -> bool {
        self.steps.is_some()
    }
}

fn difference(now: [u64; NUMBERS], before: [u64; NUMBERS]) -> [u64; NUMBERS] {
    std::array::from_fn(|at| now[at].saturating_sub(before[at]))
}
