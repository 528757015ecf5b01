//! Sequences of changes to one rule admit no more than the largest of them, and a raise makes no
//! wait longer.
//!
//! Random sequences are checked against independent bounds. They are reproducible: each case has
//! its own seed, which a failure prints. Stores that cannot set their clock run the cases in which
//! no time needs to pass.

use tollgate_core::{
    Bucket, FixedWindow, Queue, Quota, QuotaError, Rate, Rule, SlidingLog, SlidingParts, SlidingWindow, Span,
    Timestamp,
};

use super::admitted::{Admitted, Random};
use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

/// A constructor of one kind of quota from a rate.
type Kind = fn(Rate) -> Result<Quota, QuotaError>;

const KINDS: [(&str, Kind); 7] = [
    ("bucket", |rate| Bucket::new(rate).map(Quota::from)),
    ("queue", |rate| Bucket::new(rate)?.with_queue(Queue::new(rate.count - 1)).map(Quota::from)),
    ("epoch window", |rate| FixedWindow::epoch(rate).map(Quota::from)),
    ("anchored window", |rate| FixedWindow::anchored(rate).map(Quota::from)),
    ("sliding window", |rate| SlidingWindow::new(rate).map(Quota::from)),
    ("parts", |rate| SlidingParts::new(rate, 64).map(Quota::from)),
    ("log", |rate| SlidingLog::new(rate).map(Quota::from)),
];

/// The window of cases in which time passes.
const WINDOW: Span = Span::from_secs(12);

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn reloads(&self) {
        for (name, kind) in KINDS {
            let of = |units| kind(Rate::per_day(units)).expect("a valid quota");
            self.lowering_and_restoring_a_limit_admits_no_more(name, of).await;
            self.usage_survives_many_changes(name, of).await;
        }
        for seed in 0..2 * self.harness.cases() {
            self.changes_at_one_instant_admit_the_largest_capacity(seed).await;
        }
        if !self.harness.set_clock(Timestamp::from_secs(1_900_000_000)).await {
            return;
        }
        self.a_change_keeps_fractions_of_a_unit().await;
        for (name, kind) in KINDS {
            self.a_raise_makes_no_wait_longer(name, kind).await;
            for seed in 0..self.harness.cases() {
                self.changes_over_time_admit_the_largest_limit(name, kind, seed).await;
            }
        }
    }

    /// Returns how many of `most` requests pass.
    async fn passed(&self, rule: &Rule, key: &str, most: u64) -> u64 {
        let mut passed = 0;
        for _ in 0..most {
            passed += u64::from(self.take(rule, key, 1).await.is_admitted());
        }
        passed
    }

    async fn lowering_and_restoring_a_limit_admits_no_more(&self, name: &str, of: impl Fn(u64) -> Quota) {
        let case = format!("reload/restore/{name}");
        let first = rule(&case, Ok(of(20)));
        assert_eq!(self.passed(&first, "key", 21).await, 20, "{name}");
        assert_eq!(self.passed(&first, "half", 15).await, 15, "{name}");
        let lowered = rule(&case, Ok(of(10))).replacing(&first);
        for key in ["key", "half"] {
            assert_eq!(self.passed(&lowered, key, 1).await, 0, "{name}");
        }
        let restored = rule(&case, Ok(of(20))).replacing(&lowered);
        assert_eq!(self.passed(&restored, "key", 11).await, 0, "{name}: twenty were spent");
        assert_eq!(self.passed(&restored, "half", 3).await, 3, "{name}");
        let lowered = rule(&case, Ok(of(10))).replacing(&restored);
        assert_eq!(self.passed(&lowered, "half", 1).await, 0, "{name}");
        let raised = rule(&case, Ok(of(25))).replacing(&lowered);
        assert_eq!(self.passed(&raised, "key", 7).await, 5, "{name}: twenty of twenty-five were spent");
        assert_eq!(self.passed(&raised, "half", 9).await, 7, "{name}: eighteen were");
    }

    /// Checks a key that is used between the changes, and a key that is not.
    async fn usage_survives_many_changes(&self, name: &str, of: impl Fn(u64) -> Quota) {
        let case = format!("reload/many/{name}");
        let mut last = rule(&case, Ok(of(40)));
        for key in ["met", "silent"] {
            assert_eq!(self.passed(&last, key, 41).await, 40, "{name}");
        }
        for units in (20..39).rev() {
            last = rule(&case, Ok(of(units))).replacing(&last);
            assert_eq!(self.passed(&last, "met", 1).await, 0, "{name} at {units}");
        }
        last = rule(&case, Ok(of(42))).replacing(&last);
        for key in ["met", "silent"] {
            assert_eq!(self.passed(&last, key, 4).await, 2, "{name}: forty of forty-two were spent by {key}");
        }
    }

    /// Replaces any algorithm by any other.
    async fn changes_at_one_instant_admit_the_largest_capacity(&self, seed: u64) {
        let mut random = Random(seed);
        let case = format!("reload/instant/{seed}");
        let mut last: Option<Rule> = None;
        let (mut passed, mut largest) = (0, 0);
        for _ in 0..random.below(10) + 2 {
            let (_, kind) = KINDS[random.index(KINDS.len())];
            let period = [Span::from_hours(20), Span::from_days(1), Span::from_days(30)][random.index(3)];
            let quota = kind(Rate::new(random.below(30) + 1, period)).expect("a valid quota");
            let next = rule(&case, Ok(quota));
            let next = last.as_ref().map_or(next.clone(), |last| next.replacing(last));
            largest = largest.max(next.quota.capacity());
            if random.below(4) > 0 {
                passed += self.passed(&next, "key", random.below(12) + 1).await;
            }
            assert!(passed <= largest, "seed {seed}: {passed} of {largest} under {}", next.quota);
            last = Some(next);
        }
    }

    /// Returns the wait that a request would get, without charging it.
    async fn wait_for(&self, rule: &Rule, cost: u64) -> Option<Span> {
        let closed = hourly("reload/closed", 1);
        let answer = self.decide(&[Check::new(rule, b"key", cost), Check::new(&closed, b"key", 2)]).await;
        assert!(!answer.admitted);
        answer.outcomes[0].retry_after()
    }

    async fn a_raise_makes_no_wait_longer(&self, name: &str, kind: Kind) {
        for (fewer, more) in [(5, 6), (5, 50), (1, 2)] {
            let case = format!("reload/raise/{name}/{fewer}/{more}");
            let quota = |units| kind(Rate::new(units, WINDOW));
            let before = rule(&case, quota(fewer));
            for _ in 0..fewer {
                self.take(&before, "key", 1).await;
                self.harness.pass(Span::from_micros(1_100_003)).await;
            }
            for _ in 0..20 {
                let raised = rule(&case, quota(more)).replacing(&before);
                let (old, new) = (self.wait_for(&before, 1).await, self.wait_for(&raised, 1).await);
                assert!(new.unwrap_or_default() <= old.unwrap_or_default(), "{name}: {old:?} became {new:?}");
                self.harness.pass(Span::from_micros(300_007)).await;
            }
        }
    }

    /// The state that was counted last has spent less than another, by a fraction of a unit.
    async fn a_change_keeps_fractions_of_a_unit(&self) {
        let start = Timestamp::from_secs(1_900_000_000);
        let quota = |units, burst| Bucket::new(Rate::new(units, WINDOW)).and_then(|it| it.with_burst(burst));
        let [first, second, third] =
            [(2, 5), (2, 2), (1, 7)].map(|(units, burst)| rule("reload/fractions", quota(units, burst)));
        let second = second.replacing(&first);
        let third = third.replacing(&second);
        let mut admitted = Admitted::default();
        let requests =
            [(&first, 0, 3), (&second, 3_352_705, 2), (&third, 7_544_851, 3), (&third, 11_363_508, 1)];
        for (rule, micros, cost) in requests.into_iter().chain([(&third, 11_812_843, 2)]) {
            let now = start + Span::from_micros(micros);
            self.harness.set_clock(now).await;
            admitted.in_force(&rule.quota, now);
            admitted.add(self.take(rule, "key", cost).await.units(), now);
            admitted.check("fractions");
        }
    }

    async fn changes_over_time_admit_the_largest_limit(&self, name: &str, kind: Kind, seed: u64) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9) ^ 0x4d);
        let case = format!("reload/time/{name}/{seed}");
        let quota = |random: &mut Random| {
            let units = random.below(12) + 1;
            let quota = kind(Rate::new(units, WINDOW)).expect("a valid quota");
            match quota {
                Quota::Bucket(it) => {
                    let (size, wait) =
                        (random.below(12), Span::from_micros(random.below(WINDOW.as_micros())));
                    let changed = match (random.below(4), it.queue()) {
                        (0 | 1, None) | (2, Some(_)) => it.with_burst(size + 1),
                        (0, Some(queue)) => it.with_queue(queue.with_wait(wait)),
                        (1, Some(_)) => it.with_queue(Queue::new(size).with_wait(wait).with_free(size / 2)),
                        _ => Ok(it),
                    };
                    changed.expect("a small bucket").into()
                }
                quota => quota,
            }
        };
        let mut current = rule(&case, Ok(quota(&mut random)));
        let mut admitted = Admitted::default();
        let mut now = Timestamp::from_secs(1_900_000_000) + Span::from_hours(seed);
        for _ in 0..60 {
            self.harness.set_clock(now).await;
            admitted.in_force(&current.quota, now);
            if random.below(4) == 0 {
                let next = rule(&case, Ok(quota(&mut random))).replacing(&current);
                let cost = random.below(current.quota.capacity()) + 1;
                let (old, new) = (self.wait_for(&current, cost).await, self.wait_for(&next, cost).await);
                if next.quota.is_raise_of(&current.quota) {
                    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
                    assert!(new <= old, "{name}, seed {seed}: {old} became {new} for {cost}");
                }
                current = next;
                admitted.in_force(&current.quota, now);
            }
            let outcome = self.take(&current, "key", random.below(3) + 1).await;
            admitted.add(outcome.units(), now);
            admitted.check(&format!("{name}, seed {seed}"));
            now = now + Span::from_micros(random.below(WINDOW.as_micros() / 6));
        }
    }
}
