//! Applies the reply of a batch.
//!
//! In: a batch, its waiters, and the reply of the script. Out: each waiter has its answer, the deny
//! cache has the changes of the keys, and the decisions are counted.
//!
//! Invariant: the deny cache is updated before a waiter is notified, because its next request may
//! read the cache.

use smallvec::SmallVec;
use tollgate_store::Clock as _;

use crate::batch::{Batch, Item};
use crate::counters::Counts;
use crate::deny_cache::DenyCache;
use crate::failure::Failure;
use crate::redis_clock::CallTimes;
use crate::reply::{KeyChange, Replay, ScriptReply};
use crate::shared::Shared;
use crate::waiters::{DecisionReply, ItemWaiters, Waiters};

/// Applies the reply of a batch.
pub(crate) fn apply(shared: &Shared, batch: &Batch, waiters: Waiters, reply: ScriptReply) {
    Counts::add(&shared.counters.decisions, batch.requests);
    let times = shared.redis_clock.call_times(reply.now, reply.sent_at, shared.clock.now());
    let mut replay = match Replay::new(batch, reply) {
        Ok(replay) => replay,
        Err(failure) => return waiters.fail(&failure),
    };
    let deny_cache = &shared.deny_cache;
    for (item, waiters) in batch.items.iter().zip(waiters.0) {
        match (item, waiters) {
            // An error of `send` means that the receiver has stopped waiting.
            (Item::Change { key, adjustment, .. }, ItemWaiters::Change(waiter)) => {
                let (outcome, change) = replay.change(*key, *adjustment);
                update(deny_cache, batch, times, [change]);
                drop(waiter.send(outcome));
            }
            (Item::Requests { checks, many }, ItemWaiters::Requests(waiters)) => {
                let mut requests = match replay.requests(checks, *many) {
                    Ok(requests) => requests,
                    Err(failure) => {
                        ItemWaiters::Requests(waiters).fail(&failure);
                        continue;
                    }
                };
                let mut waiters = waiters.into_iter();
                for waiter in waiters.by_ref().take(requests.admitted) {
                    let (reply, changes) = requests.admit();
                    update(deny_cache, batch, times, changes);
                    drop(waiter.send(Ok(reply)));
                }
                if waiters.len() > 0 {
                    let (answer, changes) = requests.refuse();
                    update(deny_cache, batch, times, changes);
                    for waiter in waiters {
                        let reply = DecisionReply { answer: answer.clone(), renewed: SmallVec::new() };
                        drop(waiter.send(Ok(reply)));
                    }
                }
            }
            // A batch adds items and waiters together, so this does not happen.
            (_, waiters) => waiters.fail(&Failure::failed("the batch and its waiters do not match")),
        }
    }
}

/// Updates the deny cache with the changes of keys.
fn update<'r>(
    deny_cache: &DenyCache,
    batch: &Batch,
    times: CallTimes,
    changes: impl IntoIterator<Item = KeyChange<'r>>,
) {
    for change in changes {
        match change {
            KeyChange::Admitted { key, key_state } => {
                let hash = batch.keys[key].hash;
                deny_cache.renew(hash, batch.rule_id(key), batch.bare_key(key), key_state, times);
            }
            KeyChange::Refused { key, key_state, wait } => {
                let rule = (batch.rule_id(key), batch.quota(key));
                deny_cache.remember(rule, batch.bare_key(key), key_state, wait, times);
            }
            KeyChange::Adjusted { key } => {
                deny_cache.forget(batch.rule_id(key), batch.bare_key(key), times.received);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use tokio::sync::oneshot;
    use tollgate_core::{
        Adjustment, Amount, Bucket, Concurrency, FixedWindow, Owner, Quota, Rate, Rule, SlidingLog,
        SlidingParts, SlidingWindow, Span, Timestamp,
    };
    use tollgate_store::{Check, Outcomes};

    use super::*;
    use crate::batch::{BatchBuilder, Request};
    use crate::script::Scripts;
    use crate::settings::RedisSettings;
    use crate::undo::undo_call;
    use crate::waiters::ReplyReceiver;

    fn shared() -> Shared {
        let settings = RedisSettings::parse(&["redis://127.0.0.1:1"]).unwrap();
        Shared::new(settings, Scripts::on_server_clock())
    }

    fn reply(numbers: &[i64], sent_at: Timestamp) -> ScriptReply {
        ScriptReply::parse(Value::Array(numbers.iter().copied().map(Value::Int).collect()), sent_at).unwrap()
    }

    fn decide(batch: &mut BatchBuilder, checks: &[Check<'_>]) -> ReplyReceiver<DecisionReply> {
        let (waiter, reply) = oneshot::channel();
        batch.add("", Request::Decision { checks, waiter });
        reply
    }

    /// The time of Redis in the replies, in microseconds.
    const NOW: i64 = 1_800_000_000_000_000;

    #[test]
    fn the_deny_cache_has_the_refused_state_when_the_waiter_is_notified() {
        let shared = shared();
        let rule = Rule::new("rule", Bucket::new(Rate::per_day(2)).unwrap());
        let mut batch = BatchBuilder::default();
        let mut replies: Vec<_> =
            (0..3).map(|_| decide(&mut batch, &[Check::new(&rule, b"key", 1)])).collect();
        let (batch, waiters) = batch.finish();
        // A fresh bucket admits two of three.
        apply(&shared, &batch, waiters, reply(&[1, NOW, 0, 2], shared.clock.now()));
        let admitted: Vec<_> =
            replies.iter_mut().map(|reply| reply.try_recv().unwrap().unwrap().answer.admitted).collect();
        assert_eq!(admitted, [true, true, false]);
        let mut outcomes = Outcomes::new();
        let checks = [Check::new(&rule, b"key", 1)];
        assert!(shared.deny_cache.recall(&checks, shared.clock.now(), &mut outcomes).is_some());
        assert_eq!(outcomes[0].remaining, 0);
        assert_eq!(shared.counters.read().decisions, 3);
    }

    #[test]
    fn a_reply_cannot_admit_more_requests_than_were_sent() {
        let rule = Rule::new("rule", Bucket::new(Rate::per_day(2)).unwrap());
        let mut batch = BatchBuilder::default();
        let _reply = decide(&mut batch, &[Check::new(&rule, b"key", 1)]);
        let (batch, _) = batch.finish();
        let undone = undo_call(&batch, reply(&[1, NOW, 0, i64::MAX], Timestamp::EPOCH));
        assert!(matches!(undone[..], [(0, Adjustment::Refund { units: 1, .. })]), "{undone:?}");
    }

    #[test]
    fn no_reply_of_a_server_causes_a_panic_or_leaves_a_waiter_without_an_answer() {
        let rate = Rate::new(5, Span::from_secs(10));
        let quotas: [Quota; 6] = [
            Bucket::new(Rate::new(7, Span::from_micros(3_333))).unwrap().into(),
            FixedWindow::anchored(rate).unwrap().into(),
            SlidingWindow::new(rate).unwrap().into(),
            SlidingParts::new(rate, 7).unwrap().into(),
            SlidingLog::new(rate).unwrap().into(),
            Concurrency::new(3, Span::from_secs(5)).unwrap().into(),
        ];
        let (shared, rules) = (shared(), quotas.map(|quota| Rule::new("rule", quota)));
        for seed in 0..5_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut batch, mut decisions, mut changes) = (BatchBuilder::default(), Vec::new(), Vec::new());
            for _ in 0..rng.usize(1..5) {
                let checks: Vec<_> = (0..rng.usize(1..3))
                    .map(|_| {
                        let amount = match rng.u8(..3) {
                            0 => Amount::Slot(Owner(rng.u128(..3))),
                            1 => Amount::UpTo(rng.u64(..4)),
                            _ => Amount::Exactly(rng.u64(..4)),
                        };
                        let rule = &rules[rng.usize(..rules.len())];
                        Check { amount, count_denied: rng.bool(), ..Check::new(rule, b"key", 1) }
                    })
                    .collect();
                decisions.push(decide(&mut batch, &checks));
                let (waiter, reply) = oneshot::channel();
                let (rule, adjustment) = (checks[0].rule, Adjustment::Reset);
                batch.add("", Request::Change { rule, key: b"key", adjustment, id: None, waiter });
                changes.push(reply);
            }
            let mut numbers = vec![1, NOW];
            numbers.extend((0..rng.usize(..60)).map(|_| match rng.u8(..4) {
                0 => rng.i64(..),
                1 => NOW + rng.i64(-10_000_000..10_000_000),
                2 => [i64::MAX, i64::MIN, -1, 0][rng.usize(..4)],
                _ => rng.i64(..9),
            }));
            let (batch, waiters) = batch.finish();
            undo_call(&batch, reply(&numbers, shared.clock.now()));
            apply(&shared, &batch, waiters, reply(&numbers, shared.clock.now()));
            assert!(decisions.iter_mut().all(|it| it.try_recv().is_ok()), "seed {seed}: {numbers:?}");
            assert!(changes.iter_mut().all(|it| it.try_recv().is_ok()), "seed {seed}: {numbers:?}");
        }
    }
}
