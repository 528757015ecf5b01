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
            (Item::Change { key, .. }, ItemWaiters::Change(waiter)) => {
                let (outcome, change) = replay.change(*key);
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
