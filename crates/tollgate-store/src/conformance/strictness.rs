//! A sliding window in parts that becomes strict, or no longer is: its keys keep their states.

use tollgate_core::{Amount, Quota, Rate, Rule, SlidingParts, Span, State, Timestamp};

use super::admitted::Random;
use super::{Harness, Suite, rule};

const PERIOD: Span = Span::from_secs(12);
const LIMIT: u64 = 10;

/// Units with their times, and since when the window has been strict.
#[derive(Default)]
struct StrictWindow {
    units: Vec<(Timestamp, u64)>,
    since: Option<Timestamp>,
}

impl StrictWindow {
    /// Returns the units in the window that ends at `now`, if it was strict all the time.
    fn total(&self, now: Timestamp) -> Option<u64> {
        self.since.filter(|&since| since + PERIOD <= now)?;
        let within = self.units.iter().filter(|(at, _)| *at + PERIOD > now);
        Some(within.map(|(_, units)| units).sum())
    }
}

fn parts(count: u32, strict: bool) -> Quota {
    let parts = SlidingParts::new(Rate::new(LIMIT, PERIOD), count).expect("a valid quota");
    if strict { parts.strict().into() } else { parts.into() }
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn strictness(&self) {
        if !self.harness.set_clock(Timestamp::from_secs(1_900_000_000)).await {
            return;
        }
        for seed in 0..self.harness.cases() {
            self.a_switch_keeps_the_state(seed).await;
            self.a_strict_window_holds_its_limit_after_switches(seed).await;
        }
    }

    /// With one number of parts, the store continues with one state, whichever way it is read.
    async fn a_switch_keeps_the_state(&self, seed: u64) {
        let (mut random, case) = (Random(seed), format!("strictness/state/{seed}"));
        let count = [2, 3, 7][random.index(3)];
        let mut current = rule(&case, Ok(parts(count, false)));
        let mut state: State = current.quota.fresh();
        let mut now = Timestamp::from_secs(1_900_000_000) + Span::from_hours(seed);
        for _ in 0..40 {
            self.harness.set_clock(now).await;
            if random.below(4) == 0 {
                current = switched(&mut random, count, &case, &current);
                let [strict, even] = [true, false].map(|strict| parts(count, strict).used(&state, now));
                assert!(strict >= even, "seed {seed}: {even} units became {strict}");
            }
            let cost = random.below(3) + 1;
            let expected = current.quota.step(&mut state, Amount::Exactly(cost), now);
            assert_eq!(self.take(&current, "key", cost).await, expected, "seed {seed}: {}", current.quota);
            now = now + Span::from_micros(random.below(PERIOD.as_micros() / 6));
        }
    }

    /// The number of parts may change, too.
    async fn a_strict_window_holds_its_limit_after_switches(&self, seed: u64) {
        let (mut random, case) = (Random(seed), format!("strictness/limit/{seed}"));
        let mut current = rule(&case, Ok(parts(7, false)));
        let mut window = StrictWindow::default();
        let mut now = Timestamp::from_secs(1_900_000_000) + Span::from_hours(seed);
        for _ in 0..80 {
            self.harness.set_clock(now).await;
            if random.below(12) == 0 {
                let count = [2, 7, 16][random.index(3)];
                current = switched(&mut random, count, &case, &current);
                let is_strict = matches!(&current.quota, Quota::SlidingParts(it) if it.is_strict());
                window.since = is_strict.then(|| window.since.unwrap_or(now));
            }
            let units = self.take(&current, "key", random.below(3) + 1).await.units();
            window.units.push((now, units));
            let total = window.total(now).unwrap_or(0);
            assert!(total <= LIMIT, "seed {seed}: {total} under {}", current.quota);
            now = now + Span::from_micros(random.below(PERIOD.as_micros() / 6));
        }
    }
}

fn switched(random: &mut Random, count: u32, case: &str, current: &Rule) -> Rule {
    rule(case, Ok(parts(count, random.below(2) == 0))).replacing(current)
}
