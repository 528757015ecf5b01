//! A decision that waits: its request is matched once, and its store is asked once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::policy::Key;
use tollgate::store::{Answer, Check, Outcomes, join_all};
use tollgate::{
    Adjustment, Bucket, Decision, Fate, Limiter, ManualClock, MemoryStore, Outcome, PendingBatch, Policy,
    Rate, Request, Rule, Span, Store, StoreError, Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_772_366_400);

/// The calls that a store received.
#[derive(Debug, Default)]
struct Calls {
    attempts: AtomicU64,
    decisions: AtomicU64,
    adjustments: AtomicU64,
}

impl Calls {
    /// Returns the attempts, decisions and adjustments since the last call.
    fn take(&self) -> [u64; 3] {
        [&self.attempts, &self.decisions, &self.adjustments].map(|it| it.swap(0, Ordering::Relaxed))
    }
}

/// A store that waits, and answers refusals from a cache if it `remembers`.
struct CountingStore {
    memory: MemoryStore<ManualClock>,
    calls: Arc<Calls>,
    remembers: bool,
}

impl Store for CountingStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        panic!("this would search the cache a second time")
    }

    fn try_decide(&self, checks: &[Check<'_>], outcomes: &mut Outcomes) -> Option<(bool, Timestamp)> {
        self.calls.attempts.fetch_add(1, Ordering::Relaxed);
        let refuses = |check: &Check<'_>| {
            let peek = Check { amount: tollgate::Amount::Exactly(0), ..*check };
            self.memory.decide_now(&[peek]).outcomes[0].remaining == 0
        };
        if !self.remembers || !checks.iter().any(|it| it.binding && refuses(it)) {
            return None;
        }
        let answer = self.memory.decide_now(checks);
        assert!(!answer.admitted, "a cache only refuses");
        outcomes.extend(answer.outcomes);
        Some((false, answer.at))
    }

    async fn decide_uncached(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        self.calls.decisions.fetch_add(1, Ordering::Relaxed);
        Ok(self.memory.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        self.calls.adjustments.fetch_add(1, Ordering::Relaxed);
        Ok(self.memory.adjust_now(rule, key, adjustment))
    }
}

/// A request that counts how often it is matched: matching reads the descriptor once.
#[derive(Debug, Default)]
struct CountedRequest {
    matches: AtomicU64,
    plan: Option<&'static str>,
    user: &'static str,
}

impl CountedRequest {
    fn new(user: &'static str) -> Self {
        Self { user, ..Self::default() }
    }
}

impl Request for CountedRequest {
    fn method(&self) -> &'static str {
        "GET"
    }

    fn path(&self) -> &'static str {
        self.matches.fetch_add(1, Ordering::Relaxed);
        "/"
    }

    fn user(&self) -> Option<&str> {
        Some(self.user)
    }

    fn api_key(&self) -> Option<&str> {
        None
    }

    fn tenant(&self) -> Option<&str> {
        None
    }

    fn plan(&self) -> Option<&str> {
        self.plan
    }
}

fn parse(policy: &str) -> Policy {
    Policy::parse(policy).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn limiter(policy: &str, remembers: bool) -> (Limiter<CountingStore>, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let memory = MemoryStore::with_seed(1_000, ManualClock::at(START), 7);
    let store = CountingStore { memory, calls: Arc::clone(&calls), remembers };
    (Limiter::with_store(parse(policy), store), calls)
}

fn remaining(decision: &Decision<'_>) -> Vec<u64> {
    decision.limits().map(|it| it.outcome().remaining).collect()
}

#[test]
fn a_request_is_matched_once_and_its_store_is_attempted_and_asked_once() {
    let (limiter, calls) = limiter("limits: [{by: user, windows: [2/minute, 5/hour]}]", true);
    for left in [[1, 4], [0, 3]] {
        let request = CountedRequest::new("ann");
        let decision = pollster::block_on(limiter.decide(&request));
        assert_eq!((remaining(&decision), calls.take()), (left.to_vec(), [1, 1, 0]));
        assert_eq!(request.matches.into_inner(), 1);
    }
    let request = CountedRequest::new("ann");
    let immediate = limiter.try_decide(&request, Decision::is_allowed);
    assert_eq!((immediate.unwrap(), calls.take()), (false, [1, 0, 0]), "the cache answered");
    assert_eq!(request.matches.into_inner(), 1);
}

#[test]
fn a_pending_decision_continues_where_the_attempt_stopped() {
    let (limiter, calls) = limiter("limits: [{by: user, bucket: 2/day}]", false);
    for detached in [false, true] {
        let request = CountedRequest::new("ann");
        let pending = limiter.try_decide(&request, |_| ()).unwrap_err();
        assert_eq!(calls.take(), [1, 0, 0], "nothing is charged yet");
        let allowed = if detached {
            pollster::block_on(pending.detach().finish(Some(&request), |it| it.fate() == Fate::Admitted))
        } else {
            pollster::block_on(pending.finish(Some(&request))).is_allowed()
        };
        assert_eq!((allowed, calls.take(), request.matches.into_inner()), (true, [0, 1, 0], 1));
    }
    drop(limiter.try_decide(&CountedRequest::new("bob"), |_| ()));
    assert_eq!(calls.take(), [1, 0, 0]);
    assert_eq!(remaining(&pollster::block_on(limiter.decide(&CountedRequest::new("bob")))), [1]);
}

#[test]
fn named_limits_rules_and_batches_are_asked_once_too() {
    let (limiter, calls) = limiter("limits: [{name: api, by: user, bucket: 100/day}]", true);
    let limit = limiter.policy().limit("api").unwrap();
    let rule = Rule::new("own", Bucket::new(Rate::per_day(10)).unwrap());
    let requests = [CountedRequest::new("ann"), CountedRequest::new("bob")];
    let own = || Key::named(b"own");
    pollster::block_on(async {
        drop(limiter.decide_named(limit, Key::named(b"ann"), None, None).await);
        assert_eq!(calls.take(), [1, 1, 0]);
        drop(limiter.decide_rule(&rule, own(), 3).await);
        assert_eq!(calls.take(), [1, 1, 0]);
        let decision = limiter.decide_batch(&requests).await;
        assert_eq!((remaining(&decision), calls.take()), (vec![99, 99], [1, 1, 0]));
        // The rule is in no policy: the detached decision keeps it.
        let detached = limiter.try_decide_rule(&rule, own(), 3, |_| ()).unwrap_err().detach();
        drop(rule);
        assert_eq!((detached.finish(None, remaining).await, calls.take()), (vec![4], [1, 1, 0]));
    });
    assert_eq!(requests.map(|it| it.matches.into_inner()), [1, 1]);
}

#[test]
fn detached_checks_keep_plans_overrides_windows_and_shadow_blocks() {
    let policy = "
plans: {default: free}
limits:
  - name: api
    by: user
    windows: [3/minute, 30/hour]
    plans: {free: [5/minute, 50/hour], pro: [7/minute, 70/hour]}
    overrides: {vip: [9/minute, 90/hour]}
  - {name: tried, by: user, bucket: 4/day, mode: shadow, overrides: {ann: blocked}}
";
    let (limiter, _) = limiter(policy, false);
    for (user, plan, expected) in [
        ("ann", None, vec![4, 49]),
        ("bob", Some("pro"), vec![6, 69, 3]),
        ("vip", Some("pro"), vec![8, 89, 3]),
        ("eve", Some("other"), vec![2, 29, 3]),
    ] {
        let request = CountedRequest { plan, ..CountedRequest::new(user) };
        let pending = limiter.try_decide(&request, |_| ()).unwrap_err().detach();
        let seen = |decision: &Decision<'_>| (remaining(decision), decision.shadowed().len());
        let decided = pollster::block_on(pending.finish(Some(&request), seen));
        assert_eq!(decided, (expected, usize::from(user == "ann")), "{user}");
    }
}

#[test]
fn a_detached_decision_is_made_by_the_policy_that_matched_it() {
    let (old, _) = limiter("limits: [{name: api, by: user, bucket: 5/day}]", false);
    let request = CountedRequest::new("ann");
    let pending = old.try_decide(&request, |_| ()).unwrap_err().detach();
    let new = old.with_policy(parse("limits: [{name: other, by: user, bucket: 100/day}]"));
    drop(old);
    assert_eq!(pollster::block_on(pending.finish(Some(&request), remaining)), [4]);
    assert_eq!(remaining(&pollster::block_on(new.decide(&request))), [99]);
}

#[test]
fn a_block_with_counted_refusals_waits_for_the_count() {
    let policy = "limits:
  - {name: counting, by: user, bucket: 5/day, count_denied: true}
  - {name: blocking, by: user, bucket: 5/day, overrides: {ann: blocked}}";
    let (limiter, calls) = limiter(policy, false);
    let request = CountedRequest::new("ann");
    let pending = limiter.try_decide(&request, |_| ()).unwrap_err().detach();
    pollster::block_on(pending.finish(Some(&request), |decision| {
        assert!(matches!(decision.fate(), Fate::Blocked(block) if block.limit.name() == "blocking"));
    }));
    assert_eq!(calls.take(), [1, 1, 0]);
}

/// A candidate that is more generous than the limit in force counts the requests that only that
/// limit refused: a second batch.
#[test]
fn corrections_of_candidates_are_attempted_and_asked_once() {
    let policy = "limits: [{name: live, by: user, bucket: 1/day, candidate: {bucket: 10/day}}]";
    for remembers in [false, true] {
        let (limiter, calls) = limiter(policy, remembers);
        let request = CountedRequest::new("ann");
        assert_eq!(remaining(&pollster::block_on(limiter.decide(&request))), [0, 9]);
        assert_eq!(calls.take(), [1, 1, 0]);
        let pending = limiter.try_decide(&request, |_| ()).unwrap_err().detach();
        let seen = |decision: &Decision<'_>| (decision.is_allowed(), remaining(decision));
        let decided = pollster::block_on(pending.finish(Some(&request), seen));
        assert_eq!(decided, (false, vec![0, 8]), "the candidate was charged once");
        let expected = if remembers { [2, 1, 0] } else { [2, 2, 0] };
        assert_eq!(calls.take(), expected, "one attempt and at most one call for each batch");
        assert_eq!(request.matches.into_inner(), 2);
    }
}

#[test]
fn candidates_refund_the_windows_that_they_would_not_have_charged() {
    let policy = "limits:
  - {name: live, by: user, bucket: 100/day, candidate: {windows: [5/day, 1/minute]}}";
    let (limiter, calls) = limiter(policy, false);
    let request = CountedRequest::new("ann");
    drop(pollster::block_on(limiter.decide(&request)));
    calls.take();
    let second = pollster::block_on(limiter.decide(&request));
    assert!(second.is_allowed());
    let reset = second.limits().map(|it| it.outcome().reset_after).max();
    assert!(reset > Some(Span::ZERO));
    assert_eq!(calls.take(), [1, 1, 1], "one batch, one refund");
}

#[test]
fn decisions_that_wait_together_are_made_as_single_ones_are() {
    let policy = "limits:
  - {name: api, by: user, bucket: 3/day}
  - {name: slots, by: user, slots: 2}
  - {name: live, by: user, bucket: 1/day, candidate: {bucket: 10/day}}";
    let (limiter, calls) = limiter(policy, false);
    let limit = |name: &str| limiter.policy().limit(name).unwrap();
    let mut batch = PendingBatch::new(&limiter);
    for user in ["ann", "bob", "ann", "ann", "ann"] {
        let pending = batch.try_decide_named(limit("api"), Key::named(user.as_bytes()), None, |_| ());
        assert!(pending.unwrap_err().is_none(), "it waits in the batch");
    }
    for _ in 0..2 {
        let pending = batch.try_decide_named(limit("live"), Key::named(b"ann"), None, |_| ());
        assert!(pending.unwrap_err().is_none());
    }
    // A slot would stay taken if the batch were dropped.
    let slot = batch.try_decide_named(limit("slots"), Key::named(b"ann"), None, |_| ()).unwrap_err();
    assert!(pollster::block_on(slot.unwrap().finish(None)).is_allowed());
    assert_eq!((batch.len(), calls.take()), (7, [8, 1, 0]));
    let mut seen = vec![None; batch.len()];
    pollster::block_on(batch.finish(|number, decision| {
        assert!(seen[number].replace((decision.is_allowed(), remaining(decision))).is_none());
    }));
    let expected = [
        (true, vec![2]),
        (true, vec![2]),
        (true, vec![1]),
        (true, vec![0]),
        (false, vec![0]),
        (true, vec![0]),
        (false, vec![0]),
    ];
    assert_eq!(seen, expected.map(Some));
    assert_eq!(calls.take(), [0, 7, 0]);
}

/// A store whose calls for the key `lost` fail, and that answers too few batches if it `forgets`.
struct PartialStore {
    memory: MemoryStore<ManualClock>,
    forgets: bool,
}

impl Store for PartialStore {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        match checks {
            [check] if check.key == Key::named(b"lost").as_bytes() => {
                Err(StoreError::Refused("its node is gone".into()))
            }
            _ => Ok(self.memory.decide_now(checks)),
        }
    }

    async fn decide_all(&self, batches: &[&[Check<'_>]]) -> Vec<Result<Answer, StoreError>> {
        let mut answers = join_all(batches.iter().map(|checks| self.decide(checks))).await;
        answers.truncate(if self.forgets { 1 } else { batches.len() });
        answers
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.memory.adjust_now(rule, key, adjustment))
    }
}

#[test]
fn a_request_without_an_answer_is_decided_by_the_outage_rules_and_no_other() {
    for (forgets, expected) in [(false, [false, true, false]), (true, [false, true, true])] {
        let memory = MemoryStore::with_seed(1_000, ManualClock::at(START), 7);
        let policy = parse("limits: [{name: api, by: user, bucket: 100/day}]");
        let limiter = Limiter::with_store(policy, PartialStore { memory, forgets });
        let limit = limiter.policy().limit("api").unwrap();
        let mut batch = PendingBatch::new(&limiter);
        for user in ["ann", "lost", "bob"] {
            let pending = batch.try_decide_named(limit, Key::named(user.as_bytes()), None, |_| ());
            assert!(pending.unwrap_err().is_none());
        }
        let mut degraded = Vec::new();
        pollster::block_on(batch.finish(|_, decision| degraded.push(decision.is_degraded())));
        assert_eq!(degraded, expected);
    }
}
