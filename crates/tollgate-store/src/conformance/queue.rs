//! Leaky queues: waits, their order, places that are released, and reloads.
//!
//! The start of a request is the time of the answer plus its wait. It does not depend on the time
//! that passes between two calls, so it is exact on a store with its own clock, too.

use tollgate_core::{Adjustment, Amount, Bucket, ChargeTimes, Queue, Rate, Rule, Span, Timestamp};

use super::{Harness, Suite, hourly, rule};
use crate::store::Check;

/// One unit of the cases: long compared to any test.
const UNIT: Span = Span::from_hours(1);

fn queue(case: &str, queue: Queue) -> Rule {
    rule(&format!("queue/{case}"), Bucket::new(Rate::new(1, UNIT)).and_then(|it| it.with_queue(queue)))
}

/// Queues of a minute at most share their states: only their waits are short.
fn short(case: &str, queue: Queue) -> Rule {
    let rate = Rate::new(1, Span::from_secs(5));
    rule(&format!("queue/{case}"), Bucket::new(rate).and_then(|it| it.with_queue(queue)))
}

/// An admitted request.
struct Admission {
    at: Timestamp,
    starts: Timestamp,
    charge: ChargeTimes,
}

impl<H: Harness> Suite<'_, H> {
    pub(super) async fn queues(&self) {
        self.requests_start_in_order_spaced_by_the_rate().await;
        self.free_places_do_not_wait().await;
        self.a_wait_beyond_the_bound_is_refused().await;
        self.fractions_of_a_tick_do_not_drift().await;
        self.a_cost_takes_as_many_places().await;
        self.a_refused_batch_takes_no_place().await;
        self.one_key_twice_in_a_batch_waits_twice().await;
        self.the_last_places_that_are_left_go_to_newcomers().await;
        self.a_place_in_the_middle_that_is_left_passes_unused().await;
        self.a_place_that_was_kept_is_refunded_when_it_is_the_last().await;
        self.requests_that_stay_are_spaced_by_the_rate_whoever_leaves().await;
        self.a_reload_of_a_queue_keeps_its_order().await;
        self.usage_carries_over_between_a_queue_and_a_bucket().await;
    }

    /// Returns the admission of one unit, or `None` if it is refused.
    async fn enqueue(&self, rule: &Rule, key: &str) -> Option<Admission> {
        self.enqueue_n(rule, key, 1).await
    }

    async fn enqueue_n(&self, rule: &Rule, key: &str, cost: u64) -> Option<Admission> {
        let answer = self.decide(&[Check::new(rule, key.as_bytes(), cost)]).await;
        let outcome = answer.outcomes[0];
        assert_eq!(outcome.is_admitted(), answer.admitted);
        outcome.is_admitted().then(|| Admission {
            at: answer.at,
            starts: answer.at + outcome.wait(),
            charge: ChargeTimes::of(answer.at, &outcome),
        })
    }

    async fn requests_start_in_order_spaced_by_the_rate(&self) {
        let rule = queue("order", Queue::new(50));
        let first = self.enqueue(&rule, "key").await.expect("an empty queue");
        assert_eq!(first.starts, first.at, "the first starts immediately");
        let mut expected = first.starts;
        for nth in 1..=50 {
            expected = expected + UNIT;
            let next = self.enqueue(&rule, "key").await;
            assert_eq!(next.map(|it| it.starts), Some(expected), "request {nth} of 50 that wait");
        }
        for _ in 0..3 {
            let refused = self.take(&rule, "key", 1).await;
            assert!(!refused.is_admitted() && refused.wait().is_zero() && refused.remaining == 0);
            assert!(refused.retry_after().is_some_and(|wait| wait <= UNIT && !wait.is_zero()));
        }
        assert!(self.take(&rule, "key", 0).await.wait().is_zero(), "a read does not wait");
        assert!(self.take(&rule, "other", 1).await.wait().is_zero(), "another key has another queue");
    }

    async fn free_places_do_not_wait(&self) {
        let rule = queue("free", Queue::new(4).with_free(2));
        let mut waits = Vec::new();
        let mut first = None;
        while let Some(admission) = self.enqueue(&rule, "key").await {
            let first = *first.get_or_insert(admission.at);
            let is_immediate = admission.starts == admission.at;
            waits.push(if is_immediate { Span::ZERO } else { admission.starts.since(first) });
        }
        assert_eq!(waits, [Span::ZERO, Span::ZERO, Span::ZERO, UNIT, UNIT + UNIT]);
        let all_free = queue("nodelay", Queue::new(4).with_free(4));
        for _ in 0..5 {
            assert!(self.take(&all_free, "key", 1).await.wait().is_zero());
        }
        assert!(!self.take(&all_free, "key", 1).await.is_admitted());
    }

    async fn a_wait_beyond_the_bound_is_refused(&self) {
        let half = Span::from_minutes(30);
        let rule = queue("wait", Queue::new(50).with_wait(UNIT + half));
        for admitted in [true, true, false] {
            assert_eq!(self.enqueue(&rule, "key").await.is_some(), admitted);
        }
        let wait = self.take(&rule, "key", 1).await.retry_after().expect("a refusal with a wait");
        assert!(wait <= half, "{wait}: it passes once it would wait for an hour and a half");
        assert!(wait + Span::from_minutes(5) > half, "{wait}");
    }

    async fn fractions_of_a_tick_do_not_drift(&self) {
        // A seventh of an hour is not a whole number of microseconds.
        let quota = Bucket::new(Rate::new(7, UNIT)).and_then(|it| it.with_queue(Queue::new(14)));
        let rule = rule("queue/fractions", quota);
        let first = self.enqueue(&rule, "key").await.expect("an empty queue").starts;
        for nth in 1..=14 {
            let starts = self.enqueue(&rule, "key").await.expect("a place").starts;
            let exact = (nth * UNIT.as_micros()).div_ceil(7);
            assert_eq!(starts.since(first), Span::from_micros(exact), "request {nth}");
        }
    }

    async fn a_cost_takes_as_many_places(&self) {
        let rule = queue("cost", Queue::new(9));
        let first = self.enqueue_n(&rule, "key", 4).await.expect("an empty queue").starts;
        let second = self.enqueue_n(&rule, "key", 3).await.expect("six places");
        assert_eq!(second.starts.since(first), Span::from_hours(4));
        assert!(self.enqueue_n(&rule, "key", 4).await.is_none(), "three places are left");
        let up_to = Check { amount: Amount::UpTo(100), ..Check::new(&rule, b"key", 0) };
        let answer = self.decide(&[up_to]).await;
        assert_eq!(answer.outcomes[0].units(), 3);
        assert_eq!((answer.at + answer.outcomes[0].wait()).since(first), Span::from_hours(7));
    }

    async fn a_refused_batch_takes_no_place(&self) {
        let (rule, closed) = (queue("batch", Queue::new(5)), hourly("queue/closed", 1));
        let first = self.enqueue(&rule, "key").await.expect("an empty queue").starts;
        self.take(&closed, "key", 1).await;
        for _ in 0..3 {
            let batch = [Check::new(&rule, b"key", 1), Check::new(&closed, b"key", 1)];
            let answer = self.decide(&batch).await;
            assert!(!answer.admitted && answer.outcomes[0].is_admitted());
            assert!(answer.outcomes[0].wait().is_zero(), "a refused request waits for nothing");
        }
        let next = self.enqueue(&rule, "key").await.expect("the second place");
        assert_eq!(next.starts.since(first), UNIT);
        let open = hourly("queue/open", 10);
        let batch = [Check::new(&open, b"key", 1), Check::new(&rule, b"key", 1)];
        let answer = self.decide(&batch).await;
        assert!(answer.admitted && answer.outcomes[0].wait().is_zero());
        assert_eq!((answer.at + answer.outcomes[1].wait()).since(first), UNIT + UNIT);
    }

    async fn one_key_twice_in_a_batch_waits_twice(&self) {
        let rule = queue("twice", Queue::new(3));
        let twice = [Check::new(&rule, b"key", 1), Check::new(&rule, b"key", 1)];
        let answer = self.decide(&twice).await;
        assert_eq!([0, 1].map(|at| answer.outcomes[at].wait()), [Span::ZERO, UNIT]);
    }

    /// Fills the queue of a key.
    async fn fill(&self, rule: &Rule, key: &str) -> Vec<Admission> {
        let mut waiting = Vec::new();
        while let Some(admission) = self.enqueue(rule, key).await {
            waiting.push(admission);
        }
        waiting
    }

    /// Leaves the queue. Returns whether the place is kept, because requests wait behind it.
    async fn leave(&self, rule: &Rule, key: &str, admission: &Admission) -> bool {
        let charge = admission.charge;
        self.adjust(rule, key, Adjustment::Refund { units: 1, charge }).await.units() > 0
    }

    async fn the_last_places_that_are_left_go_to_newcomers(&self) {
        let rule = queue("leave", Queue::new(5));
        let waiting = self.fill(&rule, "key").await;
        assert_eq!(waiting.len(), 6);
        for leaving in [3, 5] {
            // From the last one down.
            for admission in waiting[leaving..].iter().rev() {
                self.leave(&rule, "key", admission).await;
            }
            for expected in &waiting[leaving..] {
                let newcomer = self.enqueue(&rule, "key").await.expect("a place that was left");
                assert_eq!(newcomer.starts, expected.starts);
            }
            assert!(self.enqueue(&rule, "key").await.is_none(), "as many places, and no more");
        }
        // All leave: the next request starts immediately, and the queue is as long as before.
        for admission in waiting.iter().rev() {
            self.leave(&rule, "key", admission).await;
        }
        let first = self.enqueue(&rule, "key").await.expect("an empty queue");
        assert_eq!(first.starts, first.at);
        assert_eq!(self.fill(&rule, "key").await.len(), 5, "no more than a full queue comes back");
    }

    async fn a_place_in_the_middle_that_is_left_passes_unused(&self) {
        let rule = queue("middle", Queue::new(5));
        let waiting = self.fill(&rule, "key").await;
        for admission in &waiting[1..5] {
            assert!(self.leave(&rule, "key", admission).await, "the place is kept");
            assert!(self.enqueue(&rule, "key").await.is_none(), "those behind it keep their times");
        }
        assert!(!self.leave(&rule, "key", &waiting[5]).await);
        let newcomer = self.enqueue(&rule, "key").await.expect("the last place");
        assert_eq!(newcomer.starts, waiting[5].starts);
    }

    /// A refund that left a place as it is returns it later, when the requests behind have left.
    async fn a_place_that_was_kept_is_refunded_when_it_is_the_last(&self) {
        let rule = queue("kept", Queue::new(5));
        let waiting = self.fill(&rule, "key").await;
        for admission in &waiting[1..5] {
            assert!(self.leave(&rule, "key", admission).await);
        }
        for admission in waiting[1..].iter().rev() {
            assert!(!self.leave(&rule, "key", admission).await, "it is the last place");
        }
        let newcomer = self.enqueue(&rule, "key").await.expect("an empty queue");
        assert_eq!(newcomer.starts, waiting[1].starts);
    }

    /// Requests come and leave in an order that is the same in each run. The remaining ones start in their
    /// order, and never closer than the rate beyond the free places.
    async fn requests_that_stay_are_spaced_by_the_rate_whoever_leaves(&self) {
        for (case, free) in [("stay", 0), ("stay free", 2)] {
            let rule = queue(case, Queue::new(8).with_free(free));
            let (mut requests, mut random) = (Vec::<Admission>::new(), 7u64);
            for _ in 0..150 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (leaves, which) = (random >> 62 == 0, usize::try_from(random >> 40 & 0xff).unwrap_or(0));
                if leaves && requests.len() > 1 {
                    let leaving = 1 + which % (requests.len() - 1);
                    // Only waiting requests leave, and the last one as often as all others.
                    let leaving = if which.is_multiple_of(2) { requests.len() - 1 } else { leaving };
                    if requests[leaving].starts > requests[leaving].at {
                        let leaving = requests.remove(leaving);
                        self.leave(&rule, "key", &leaving).await;
                    }
                } else if let Some(admission) = self.enqueue(&rule, "key").await {
                    requests.push(admission);
                }
            }
            let spaced = usize::try_from(free).unwrap_or(0) + 1;
            assert!(requests.len() > spaced);
            for (first, last) in requests.iter().zip(&requests[spaced..]) {
                let between = last.starts.since(first.starts);
                // The first ones start at the times of their calls.
                let late = Span::from_minutes(if first.starts == first.at { 10 } else { 0 });
                assert!(between + late >= UNIT, "{case}: {between}");
            }
        }
    }

    async fn a_reload_of_a_queue_keeps_its_order(&self) {
        let long = short("reload", Queue::new(11));
        let mut last = None;
        while let Some(admission) = self.enqueue(&long, "key").await {
            last = Some(admission.starts);
        }
        let last = last.expect("twelve requests");
        for shorter in [Queue::new(3), Queue::new(11).with_wait(Span::from_secs(5))] {
            let shorter = short("reload", shorter).replacing(&long);
            assert!(self.enqueue(&shorter, "key").await.is_none(), "waiting requests are not overtaken");
            let wait = self.take(&shorter, "key", 1).await.retry_after().expect("a refusal with a wait");
            assert!(wait > Span::from_secs(25), "{wait}");
        }
        let free = short("reload", Queue::new(11).with_free(11)).replacing(&long);
        assert!(self.enqueue(&free, "key").await.is_none(), "the queue is still full");
        self.adjust(&free, "key", Adjustment::Grant { units: 1 }).await;
        let longer = short("reload", Queue::new(11)).replacing(&free);
        assert_eq!(self.enqueue(&longer, "key").await.map(|it| it.starts), Some(last));
    }

    async fn usage_carries_over_between_a_queue_and_a_bucket(&self) {
        let bucket = rule("queue/carry", Bucket::new(Rate::new(1, UNIT)).and_then(|it| it.with_burst(10)));
        for _ in 0..4 {
            self.take(&bucket, "key", 1).await;
        }
        let queued = queue("carry", Queue::new(9)).replacing(&bucket);
        let fifth = self.take(&queued, "key", 1).await;
        assert_eq!(fifth.remaining, 5);
        assert!(
            fifth.wait() > Span::from_hours(3) && fifth.wait() <= Span::from_hours(4),
            "{}",
            fifth.wait()
        );
        let faster = Bucket::new(Rate::new(2, UNIT)).and_then(|it| it.with_queue(Queue::new(9)));
        let faster = rule("queue/carry", faster).replacing(&queued);
        let sixth = self.take(&faster, "key", 1).await;
        assert_eq!(sixth.remaining, 4);
        let (half, wait) = (Span::from_minutes(150), sixth.wait());
        assert!(wait <= half && wait + Span::from_minutes(30) > half, "{wait}: five are before it");
        let bucket = bucket.replacing(&faster);
        assert_eq!(self.remaining(&bucket, "key").await, 4);
    }
}
