//! Measures decisions about one hot key: from a lease, and in the in-memory store.
//!
//! ```text
//! cargo run --release -p tollgate-lease --example hot_key
//! ```

use std::hint::black_box;

use tollgate_core::{Adjustment, Bucket, Outcome, Rate, Rule, Span};
use tollgate_lease::Leased;
use tollgate_store::{Answer, Check, Clock as _, MemoryStore, Outcomes, Store, StoreError, SystemClock};

/// A store in memory that answers only calls that wait, as one behind a network does.
struct Remote(MemoryStore);

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        Ok(self.0.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.0.adjust_now(rule, key, adjustment))
    }
}

const ROUNDS: u32 = 2_000_000;

fn main() {
    let quota = Bucket::new(Rate::per_second(1_000_000)).and_then(|it| it.with_burst(100_000_000));
    let Ok(quota) = quota else { return };
    let rule = Rule::new("hot", quota).leased_for(Some(Span::from_secs(10)));
    let leased = Leased::new(Remote(MemoryStore::new(1_000)));
    let memory = MemoryStore::new(1_000);
    let checks = [Check::new(&rule, b"203.0.113.9", 1)];
    let clock = SystemClock::new();
    for round in 0..5 {
        let mut store_calls = 0_u32;
        let decide = || {
            let mut outcomes = Outcomes::new();
            let decided = leased.try_decide(black_box(&checks), &mut outcomes);
            black_box(&outcomes);
            decided.is_some()
        };
        let started_at = clock.now();
        for _ in 0..ROUNDS {
            if !decide() {
                store_calls += 1;
                pollster::block_on(async {
                    let _answer = leased.decide(&checks).await;
                    leased.tend().await;
                });
            }
        }
        let from_lease = clock.now().since(started_at);
        let started_at = clock.now();
        for _ in 0..ROUNDS {
            let mut outcomes = Outcomes::new();
            black_box(memory.try_decide(black_box(&checks), &mut outcomes));
            black_box(&outcomes);
        }
        let in_memory = clock.now().since(started_at);
        let nanos = |span: Span| 1_000 * span.as_micros() / u64::from(ROUNDS);
        println!(
            "round {round}: leased {} ns, memory {} ns, {store_calls} of {ROUNDS} asked the store",
            nanos(from_lease),
            nanos(in_memory),
        );
    }
}
