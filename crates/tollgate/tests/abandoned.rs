//! A decision whose caller stops waiting: no slot stays taken, and candidates count as in force.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use pollster::block_on;
use tollgate::store::{Answer, Check, Outcomes};
use tollgate::{
    Adjustment, Call, Decision, Limiter, ManualClock, MemoryStore, Outcome, Policy, Rule, Store, StoreError,
    Timestamp,
};
use tollgate_testkit::poll_once;

/// The behavior of a store, which a test changes.
#[derive(Debug)]
struct Behavior {
    /// The number of calls that are answered. Later calls change nothing and wait forever.
    answers: AtomicI64,
    /// Whether decisions are answered without waiting.
    is_immediate: AtomicBool,
}

impl Behavior {
    fn answer(&self, calls: i64) {
        self.answers.store(calls, Ordering::SeqCst);
    }

    async fn wait(&self) {
        if self.answers.fetch_sub(1, Ordering::SeqCst) <= 0 {
            pending::<()>().await;
        }
    }
}

struct SlowStore {
    memory: MemoryStore<ManualClock>,
    behavior: Arc<Behavior>,
}

impl Store for SlowStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.behavior.wait().await;
        Ok(self.memory.decide_now(checks))
    }

    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        // Only the first batch of a decision, so that its corrections wait.
        if !self.behavior.is_immediate.swap(false, Ordering::SeqCst) {
            return None;
        }
        let answer = self.memory.decide_now(checks);
        outcomes.extend(answer.outcomes);
        Some((answer.admitted, answer.at))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.behavior.wait().await;
        Ok(self.memory.adjust_now(rule, key, adjustment))
    }
}

fn limiter(policy: &str) -> (Limiter<SlowStore>, Arc<Behavior>) {
    let behavior =
        Arc::new(Behavior { answers: AtomicI64::new(i64::MAX), is_immediate: AtomicBool::new(false) });
    let clock = ManualClock::at(Timestamp::from_secs(1_772_366_400));
    let memory = MemoryStore::with_seed(1_000, clock, 7);
    let policy = Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    (Limiter::with_store(policy, SlowStore { memory, behavior: Arc::clone(&behavior) }), behavior)
}

fn ann() -> Call<'static> {
    Call::new("GET", "/").user("ann")
}

/// Returns the remaining units of each limit, without a charge.
fn left(limiter: &Limiter<SlowStore>) -> Vec<(String, u64)> {
    let decision = block_on(limiter.consider(&ann())).unwrap();
    decision.limits().map(|it| (it.name().to_owned(), it.remaining())).collect()
}

fn left_of(limiter: &Limiter<SlowStore>, name: &str) -> u64 {
    left(limiter).into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// The second request of a minute is refused by one window of the candidate, which then refunds the
/// other windows, one call each.
const REFUNDS: &str = "
limits:
  - {name: jobs, by: user, slots: 1, ttl: 1h}
  - {name: live, by: user, bucket: 100/day, candidate: {windows: [50/day, 60/hour, 1/minute]}}
";

/// Makes the request that empties the minute of the candidate.
fn empty_the_minute(limiter: &Limiter<SlowStore>) {
    let first = block_on(limiter.decide(&ann()));
    assert!(first.is_allowed());
    block_on(limiter.release(&first)).unwrap();
    assert_eq!(left_of(limiter, "jobs"), 1);
}

/// How a caller waits for its decision.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Decide,
    Acquire,
    Pending,
    Detached,
}

#[test]
fn an_abandoned_decision_releases_its_slots_and_keeps_its_charge() {
    for wait in [Wait::Decide, Wait::Acquire, Wait::Pending, Wait::Detached] {
        let (limiter, behavior) = limiter(REFUNDS);
        empty_the_minute(&limiter);
        // The store takes the slot, and does not answer the first refund.
        behavior.answer(1);
        let is_pending = match wait {
            Wait::Decide => poll_once(pin!(limiter.decide(&ann()))).is_pending(),
            Wait::Acquire => poll_once(pin!(limiter.acquire(&ann()))).is_pending(),
            Wait::Pending => {
                let waiting = limiter.try_decide(&ann(), |_| ()).unwrap_err();
                poll_once(pin!(waiting.finish(None))).is_pending()
            }
            Wait::Detached => {
                let waiting = limiter.try_decide(&ann(), |_| ()).unwrap_err().detach();
                poll_once(pin!(waiting.finish(None, |_| ()))).is_pending()
            }
        };
        assert!(is_pending, "{wait:?}");
        behavior.answer(i64::MAX);
        assert_eq!(left_of(&limiter, "jobs"), 0, "{wait:?}: released by reconcile");
        block_on(limiter.reconcile());
        assert_eq!(left_of(&limiter, "jobs"), 1, "{wait:?}");
        assert_eq!(left_of(&limiter, "live"), 98, "{wait:?}");
        assert_eq!(limiter.health().lost_entries, 0, "{wait:?}");
    }
}

#[test]
fn the_corrections_that_an_abandoned_decision_did_not_send_are_made() {
    let (limiter, behavior) = limiter(REFUNDS);
    empty_the_minute(&limiter);
    let before = left(&limiter);
    let waiting = limiter.try_decide(&ann(), |_| ()).unwrap_err();
    drop(waiting);
    assert_eq!(left_of(&limiter, "live"), 99, "nothing was charged");
    behavior.is_immediate.store(true, Ordering::SeqCst);
    let waiting = limiter.try_decide(&ann(), |_| ()).unwrap_err();
    assert_eq!(left_of(&limiter, "jobs"), 0, "the store answered immediately");
    drop(waiting.detach());
    assert_eq!(block_on(limiter.reconcile()), 3, "one slot and two windows");
    for ((name, before), (_, after)) in before.into_iter().zip(left(&limiter)) {
        let charged = u64::from(name == "live");
        assert_eq!(after, before - charged, "{name}");
    }
}

#[test]
fn an_abandoned_refusal_is_counted_by_a_candidate_that_would_have_admitted_it() {
    let (limiter, behavior) =
        limiter("limits: [{name: live, by: user, bucket: 1/day, candidate: {bucket: 10/day}}]");
    assert!(block_on(limiter.decide(&ann())).is_allowed());
    behavior.is_immediate.store(true, Ordering::SeqCst);
    drop(limiter.try_decide(&ann(), |_| ()).unwrap_err());
    assert_eq!(block_on(limiter.reconcile()), 1);
    let counted: Vec<_> = left(&limiter).into_iter().map(|(_, left)| left).collect();
    assert_eq!(counted, [0, 8]);
}

#[test]
fn a_decision_that_is_awaited_to_its_end_defers_nothing() {
    let (limiter, _) = limiter(REFUNDS);
    empty_the_minute(&limiter);
    let decision: Decision<'_> = block_on(limiter.decide(&ann()));
    assert!(decision.is_allowed());
    assert_eq!(limiter.health().ledger_keys, 0);
    assert_eq!(left_of(&limiter, "jobs"), 0, "the slot is held");
}
