//! Calls and replies survive the wire, and garbage does not.

use tollgate_core::{
    Amount, Bucket, Calendar, CalendarUnit, ChargeTimes, Concurrency, FixedWindow, LeaseRequest, Overdraft,
    Owner, Queue, Quota, Rate, SlidingLog, SlidingParts, SlidingWindow, Span, Verdict, Window,
};

use super::*;

fn decide(checks: &[Check<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_decide(checks, &mut out);
    out
}

fn quotas() -> Vec<Quota> {
    let bucket = Bucket::new(Rate::per_minute(7)).unwrap();
    let queue = Queue::new(9).with_free(2);
    let calendar = Calendar::new(CalendarUnit::Month, "Europe/Paris").unwrap();
    vec![
        bucket.into(),
        bucket.with_burst(1 << 20).unwrap().shared().into(),
        bucket.with_queue(queue).unwrap().into(),
        bucket.with_queue(queue.with_wait(Span::from_millis(1_234))).unwrap().into(),
        FixedWindow::epoch(Rate::per_hour(5)).unwrap().into(),
        FixedWindow::anchored(Rate::per_hour(5)).unwrap().into(),
        FixedWindow::new(5, Window::Calendar(calendar.clone())).unwrap().into(),
        FixedWindow::tally(0, Window::Calendar(calendar)).unwrap().into(),
        SlidingWindow::new(Rate::per_second(3)).unwrap().into(),
        SlidingParts::new(Rate::per_second(3), 8).unwrap().into(),
        SlidingParts::new(Rate::per_second(3), 8).unwrap().strict().into(),
        SlidingLog::new(Rate::per_second(3)).unwrap().into(),
        Concurrency::new(3, Span::from_secs(30)).unwrap().into(),
    ]
}

fn amounts() -> [Amount; 4] {
    [
        Amount::Exactly(u64::MAX),
        Amount::UpTo(0),
        Amount::Slot(Owner(u128::MAX - 1)),
        Amount::Lease(LeaseRequest { units: 9, ttl: Span::from_millis(250) }),
    ]
}

fn adjustments() -> Vec<Adjustment> {
    let (at, owner) = (Timestamp::from_secs(5), Owner(7));
    vec![
        Adjustment::Refund { units: 1, charge: ChargeTimes::without_end(at) },
        Adjustment::Grant { units: 2 },
        Adjustment::ReleaseOldest { slots: 2 },
        Adjustment::Charge { units: 3, overdraft: Overdraft::None },
        Adjustment::Charge { units: 3, overdraft: Overdraft::OneCapacity },
        Adjustment::Charge { units: 3, overdraft: Overdraft::Unlimited },
        Adjustment::Reset,
        Adjustment::Release { owner },
        Adjustment::Renew { owner },
        Adjustment::ReturnLease { units: 4, taken_at: at, ttl: Span::from_secs(1) },
    ]
}

/// Rules with predecessors, for each kind of quota.
fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for quota in quotas() {
        let rule = Rule::new("", quota);
        rules.push(rules.last().map_or(rule.clone(), |last| rule.replacing(last)));
    }
    rules
}

fn calls() -> Vec<Vec<u8>> {
    let rules = rules();
    let keys = [&b""[..], b"key", &[0xff; 300]];
    let checks: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| Check {
            rule,
            key: keys[at % 3],
            amount: amounts()[at % 4],
            binding: at % 2 == 0,
            count_denied: at % 3 == 0,
        })
        .collect();
    let mut calls = vec![encode_ping(), decide(&checks), decide(&[])];
    for (at, adjustment) in adjustments().into_iter().enumerate() {
        let id = (at % 2 == 0).then_some(AdjustmentId(u128::MAX - 3));
        calls.push(encode_adjust(&rules[at], b"key", (adjustment, id)));
    }
    let holding = holding();
    let (by, holdings) = (holding.holder.clone(), vec![(0, Arc::clone(&holding)), (9, Arc::default())]);
    calls.push(encode_claim(&Claim { by, wanted: vec![1, 255], holdings }));
    calls.push(encode_claim(&Claim::default()));
    calls.push(encode_copy(&holding, b"key", &rules[..3]));
    calls
}

fn holding() -> Arc<Holding> {
    let process = |port| {
        let address = crate::settings::Address { host: "10.0.0.1".to_owned(), port };
        Arc::new(Process { address, incarnation: u64::MAX - u64::from(port) })
    };
    Arc::new(Holding { term: 300, holder: Some(process(1)), sources: vec![process(2), process(1)] })
}

fn replies() -> Vec<Reply> {
    let at = Timestamp::from_micros(1_772_366_412_345_678);
    let outcome = |verdict| Outcome { verdict, limit: 9, remaining: 3, reset_after: Span::from_secs(1) };
    let outcomes = [
        outcome(Verdict::admitted(4)),
        outcome(Verdict::Admitted { units: 1, wait: Span::from_millis(3), leased: false }),
        outcome(Verdict::Refused { retry_after: Span::from_secs(2) }),
        outcome(Verdict::Never),
    ];
    vec![
        Reply::Pong(at),
        Reply::Decided(
            Answer { admitted: true, at, outcomes: outcomes.into() },
            [1, 3].into_iter().collect(),
        ),
        Reply::Adjusted(outcomes[2], at),
        Reply::NotHolder(255, holding()),
        Reply::Holdings(vec![(0, Arc::default()), (7, holding())]),
        Reply::Copied { incarnation: 1 << 60, at, states: vec![None, Some(quotas()[0].fresh()), None] },
        Reply::Late,
    ]
}

#[test]
fn calls_survive_the_wire() {
    let rules = rules();
    for bytes in calls() {
        let (call, not_after) = Call::decode(&bytes).unwrap();
        assert_eq!(not_after, Timestamp::from_micros(u64::MAX));
        let again = match &call {
            Call::Ping => encode_ping(),
            Call::Decide(checks) => {
                assert!(checks.iter().zip(&rules).all(|(check, rule)| check.rule == *rule));
                decide(&checks.iter().map(OwnedCheck::check).collect::<Vec<_>>())
            }
            Call::Adjust(it) => encode_adjust(&it.rule, &it.key, (it.adjustment, it.id)),
            Call::Claim(claim) => encode_claim(claim),
            Call::Copy(it) => encode_copy(&it.holding, &it.key, &it.rules),
        };
        assert_eq!(again, bytes, "{call:?}");
    }
}

#[test]
fn replies_survive_the_wire() {
    for reply in replies() {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}

#[test]
fn a_call_can_be_made_void() {
    let mut call = encode_ping();
    void_after(&mut call, Timestamp::from_secs(9));
    assert_eq!(Call::decode(&call).unwrap().1, Timestamp::from_secs(9));
}

#[test]
fn garbage() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let all: Vec<Vec<u8>> = calls().into_iter().chain(replies().iter().map(Reply::encode)).collect();
    for bytes in &all {
        for cut in 0..bytes.len() {
            assert!(Call::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            assert!(Reply::decode(&bytes[..cut]).is_err() || cut == 1, "cut at {cut}");
        }
        assert!(Call::decode(&[bytes, &[0][..]].concat()).is_err());
    }
    for _ in 0..50_000 {
        let mut bytes = all[rng.usize(..all.len())].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        // No panic; the seed is in the output of a failed test.
        let found = (Call::decode(&bytes).is_ok(), Reply::decode(&bytes).is_ok());
        assert!(found != (true, true) || bytes.len() <= 9, "seed {seed}: {bytes:?}");
    }
}
