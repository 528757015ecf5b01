//! The last minutes of one limit, in steps of five seconds.
//!
//! A limit that nobody has met for all that time takes no memory for it.

use crate::limit_counter::{LimitCounts, NO_SHARE, NUMBERS};

/// How long a step is, in seconds.
pub(crate) const STEP_SECS: u64 = 5;
/// How many steps are kept.
pub(crate) const MAX_STEPS: usize = 60;

/// One limit, in steps of five seconds, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSeries {
    /// The second that the last step goes up to, since 1970: that step is not over.
    pub until: u64,
    /// It had room.
    pub allowed: Vec<u32>,
    /// It refused, or would have in shadow mode.
    pub limited: Vec<u32>,
    /// The least share of an allowance that any key had left, in per mille; `None`: not asked.
    pub remaining: Vec<Option<u16>>,
}

/// One limit in the last five minutes, up to now: see [`Watcher::tick`](crate::Watcher::tick).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitWindow {
    /// How many.
    pub counts: LimitCounts,
    /// The least share of an allowance that any key had left, in per mille and rounded up:
    /// zero is nothing. `None`: not asked.
    pub remaining_min: Option<u16>,
}

/// The last minutes of one limit.
#[derive(Default)]
pub(crate) struct LimitHistory {
    /// The numbers when the last step ended.
    before: [u64; NUMBERS],
    /// `None`: nothing happened.
    steps: Option<Box<Steps>>,
}

struct Steps {
    /// Where the next step goes: the oldest is there.
    next: usize,
    /// How many steps nothing happened in, up to now.
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

    /// The oldest first.
    fn iter(&self) -> impl Iterator<Item = &Step> {
        let (newer, older) = self.ring.split_at(self.next);
        older.iter().chain(newer)
    }
}

impl LimitHistory {
    /// So many steps have passed; what happened meanwhile belongs to the first of them.
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

    /// The last so many steps that are over, and what has happened since.
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

    /// Step by step, with the one that is not over last.
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

    /// Whether it takes memory.
    #[cfg(test)]
    pub(crate) fn is_kept(&self) -> bool {
        self.steps.is_some()
    }
}

fn difference(now: [u64; NUMBERS], before: [u64; NUMBERS]) -> [u64; NUMBERS] {
    std::array::from_fn(|at| now[at].saturating_sub(before[at]))
}
