//! The share of this node in the buckets that several nodes serve, held in the shared store.
//!
//! A bucket is cut into quanta. A quantum is a slot of a concurrency limit in the store: it has one
//! owner and expires, so the budgets of all nodes add up to at most the limit, and the quanta of a
//! node that dies are free again. Beside the quanta, each proxy is a slot in a second, wide limit:
//! the number of them tells each node its fair part.
//!
//! Owners are not processes but places: a node claims the lowest free place for a few seconds at a
//! time. A process that restarts claims the place of the process before, and with it holds its quanta
//! at once.
//!
//! Invariant: a quantum of a place is counted by the process that has claimed the place, and by no
//! other. Tested by `tests/nodes.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::policy::{OnOutage, Policy};
use tollgate::store::{Check, Store};
use tollgate::{Amount, Concurrency, Owner, Rule, Span, Timestamp};

use crate::bucket::Bucket;
use crate::registry::{BucketKey, Registry, Stream};

/// The maximum number of quanta of a bucket.
const MAX_QUANTA: u64 = 64;
/// The time after which quanta are free that are not renewed. Assignments end before.
const QUANTUM_TTL: Span = Span::from_secs(30);
/// The interval between two renewals.
const RENEWAL: Span = Span::from_secs(3);
/// The interval between two calls about a bucket whose share should change.
const CHANGE: Span = Span::from_secs(1);
/// The quanta that a node above its fair part leaves free, so that a node below it finds some.
const SPARE: u64 = 2;
/// The maximum number of proxies of one node that are counted in the store.
const MAX_COUNTED_STREAMS: u64 = 16;
/// The maximum number of proxies of all nodes that are counted in the store.
const MAX_FLEET_STREAMS: u32 = 1 << 16;
/// The time for which a place is claimed.
const CLAIM_TTL: Span = Span::from_secs(4);
/// The interval between two renewals of a claim.
const CLAIM_RENEWAL: Span = Span::from_secs(1);
/// The maximum number of nodes.
const MAX_PLACES: u64 = 64;
/// The maximum number of buckets whose shares are renewed at a time.
const MAX_ERRANDS: usize = 1_000;

/// The share of this node in one bucket.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// One bit for each held quantum.
    held: u64,
    /// The number of quanta that the node should hold. If it holds more, its proxies are lowered
    /// first, and then the quanta are released.
    goal: u64,
    /// The streams that are counted in the store.
    counted: u64,
    /// The proxies of all nodes, and the free quanta, at the last contact.
    fleet_streams: u64,
    free: u64,
    renewed_at: Timestamp,
    /// Whether the store has answered.
    is_known: bool,
}

/// The place of this node, and its settings.
#[derive(Debug)]
pub(crate) struct NodeShares {
    is_shared: bool,
    /// The owner of the claim.
    process: Owner,
    place: Option<u64>,
    claimed_until: Timestamp,
    claimed_at: Timestamp,
    /// Whether the last call failed.
    pub(crate) is_degraded: bool,
    nodes: u64,
    /// The time of the first attempt to claim a place.
    first_attempt: Option<Timestamp>,
}

/// A call to the store about one bucket.
pub(crate) struct Errand {
    key: Arc<BucketKey>,
    place: u64,
    quanta: u64,
    streams: u64,
    wanted: u64,
    released: u64,
}

/// The answer to an errand.
struct ErrandReply {
    held: u64,
    free: u64,
    fleet_streams: u64,
}

impl NodeShares {
    pub(crate) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            process: Owner(u128::from(fastrand::u64(1..)) << 64 | u128::from(fastrand::u64(..))),
            place: None,
            claimed_until: Timestamp::EPOCH,
            claimed_at: Timestamp::EPOCH,
            is_degraded: false,
            nodes: 1,
            first_attempt: None,
        }
    }

    /// Returns the place of this node among those that share the store.
    pub(crate) const fn place(&self) -> Option<u64> {
        self.place
    }

    /// Returns the tokens of a bucket that this node may assign.
    pub(crate) fn budget(&self, bucket: &Bucket, now: Timestamp) -> u64 {
        let Some(terms) = bucket.enforced() else { return 0 };
        if !self.is_shared {
            return terms.tokens;
        }
        let share = &bucket.share;
        let is_current = now.since(share.renewed_at) < QUANTUM_TTL;
        match (share.is_known, terms.on_outage) {
            // The store has not answered since the start.
            (false, _) if !self.is_degraded => 0,
            (false, OnOutage::Local) => terms.tokens / self.nodes.max(1),
            (false, OnOutage::Allow) => terms.tokens,
            (false, OnOutage::Deny) => 0,
            (true, OnOutage::Deny) if !is_current => 0,
            // Assignments are kept while the store is down.
            (true, _) => tokens(u64::from(share.held.count_ones()).min(share.goal), terms.tokens),
        }
    }

    /// Whether proxies can be answered about a bucket. Until the store has answered, they keep what
    /// they have.
    pub(crate) fn is_ready(&self, bucket: &Bucket) -> bool {
        !self.is_shared || bucket.enforced().is_none() || bucket.share.is_known || self.is_degraded
    }

    /// Returns the calls that are due.
    fn errands(&self, buckets: &mut HashMap<Arc<BucketKey>, Bucket>, now: Timestamp) -> Vec<Errand> {
        let Some(place) = self.place else { return Vec::new() };
        let mut errands = Vec::new();
        for (key, bucket) in buckets {
            let Some(terms) = bucket.enforced() else { continue };
            let quanta = quanta(terms.tokens);
            let held = u64::from(bucket.share.held.count_ones());
            let streams = (bucket.seats.len() as u64).min(MAX_COUNTED_STREAMS);
            let in_use = quanta_of(bucket.exposure(now), terms.tokens);
            let goal = goal(&bucket.share, quanta, streams, quanta_of(bucket.wanted(), terms.tokens));
            bucket.is_due |= goal < held && goal != bucket.share.goal;
            let share = &mut bucket.share;
            share.goal = goal;
            let goal = goal.max(in_use.min(held));
            let since = now.since(share.renewed_at);
            let is_changed = (goal != held || share.counted != streams) && since >= CHANGE;
            if share.is_known && !is_changed && since < RENEWAL {
                continue;
            }
            let wanted = mask(goal.min(quanta));
            errands.push(Errand {
                key: Arc::clone(key),
                place,
                quanta,
                streams,
                wanted,
                released: share.held & !wanted,
            });
            if errands.len() == MAX_ERRANDS {
                break;
            }
        }
        errands
    }
}

/// Returns the number of quanta that a node should hold.
fn goal(share: &Share, quanta: u64, streams: u64, wanted: u64) -> u64 {
    let held = u64::from(share.held.count_ones());
    let fleet = share.fleet_streams.max(streams);
    if streams == 0 {
        return 0;
    }
    if !share.is_known || fleet == streams {
        // Alone. One quantum stays free, so that a node that joins has something to assign.
        return if quanta < MAX_QUANTA { quanta } else { quanta - 1 };
    }
    let fair = (quanta * streams / fleet).max(1);
    // One quantum more than wanted, because rounding down loses up to one.
    let wanted = wanted.saturating_add(1).min(quanta);
    if wanted <= fair {
        return wanted;
    }
    if held <= fair {
        return fair.max(held + share.free.saturating_sub(SPARE)).min(wanted);
    }
    if share.free < SPARE {
        // Another node may find none: half of the excess is given up.
        return fair + (held - fair) / 2;
    }
    (held + share.free - SPARE).min(wanted)
}

const fn quanta(tokens: u64) -> u64 {
    if tokens < MAX_QUANTA { tokens } else { MAX_QUANTA }
}

/// Returns the tokens of this many quanta, rounded down.
fn tokens(held: u64, tokens: u64) -> u64 {
    held * tokens / quanta(tokens).max(1)
}

/// Returns the quanta that hold this many tokens, rounded up.
fn quanta_of(used: u64, tokens: u64) -> u64 {
    let needed = (u128::from(used) * u128::from(quanta(tokens))).div_ceil(u128::from(tokens.max(1)));
    u64::try_from(needed).unwrap_or(u64::MAX)
}

const fn mask(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn slots(name: &str, slots: u32, ttl: Span) -> Option<Rule> {
    Concurrency::new(slots, ttl).ok().map(|it| Rule::new(name, it))
}

fn owner(place: u64, index: u64) -> Owner {
    Owner(u128::from(place + 1) << 64 | u128::from(index))
}

fn slot<'c>(rule: &'c Rule, key: &'c [u8], owner: Owner) -> Check<'c> {
    // Not binding: each slot is taken if it is free, whether or not others are.
    Check { amount: Amount::Slot(owner), binding: false, ..Check::new(rule, key, 1) }
}

impl Errand {
    async fn run<S: Store>(&self, store: &S) -> Result<ErrandReply, tollgate::StoreError> {
        let nothing = ErrandReply { held: 0, free: 0, fleet_streams: 0 };
        let quanta = u32::try_from(self.quanta).unwrap_or(u32::MAX);
        let Some((presence, shares)) = slots("tollgate.rlqs.streams", MAX_FLEET_STREAMS, QUANTUM_TTL)
            .zip(slots("tollgate.rlqs.quanta", quanta, QUANTUM_TTL))
        else {
            return Ok(nothing);
        };
        let mut key = self.key.domain.as_bytes().to_vec();
        key.push(0);
        key.extend(self.key.id.to_bytes());
        for index in bits(self.released) {
            store
                .adjust(&shares, &key, tollgate::Adjustment::Release { owner: owner(self.place, index) })
                .await?;
        }
        let mut checks: Vec<Check<'_>> =
            (0..self.streams).map(|index| slot(&presence, &key, owner(self.place, index))).collect();
        checks.extend(bits(self.wanted).map(|index| slot(&shares, &key, owner(self.place, index))));
        if checks.is_empty() {
            return Ok(nothing);
        }
        let answer = store.decide_uncached(&checks).await?;
        let (counted, quanta) = answer.outcomes.split_at(usize::try_from(self.streams).unwrap_or(usize::MAX));
        let mut held = 0;
        for (index, outcome) in bits(self.wanted).zip(quanta) {
            if outcome.verdict.is_admitted() {
                held |= 1 << index;
            }
        }
        Ok(ErrandReply {
            held,
            free: quanta.last().map_or(0, |it| it.remaining),
            fleet_streams: counted
                .last()
                .map_or(0, |it| u64::from(MAX_FLEET_STREAMS).saturating_sub(it.remaining)),
        })
    }
}

fn bits(mask: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| mask >> bit & 1 == 1)
}

/// Claims the lowest free place among the nodes, or renews the claim.
///
/// The process before this one may have claimed its place a moment ago, so a process that has just
/// started takes a place other than the first only when that claim must have ended (`may_join`).
async fn claim<S: Store>(
    store: &S,
    process: Owner,
    place: Option<u64>,
    may_join: bool,
) -> Result<Option<u64>, tollgate::StoreError> {
    let Some(rule) = slots("tollgate.rlqs.place", 1, CLAIM_TTL) else { return Ok(None) };
    for place in place.into_iter().chain(0..MAX_PLACES) {
        let key = place.to_be_bytes();
        let answer = store.decide_uncached(&[slot(&rule, &key, process)]).await?;
        if answer.outcomes.first().is_some_and(|it| it.verdict.is_admitted()) {
            return Ok(Some(place));
        }
        if !may_join {
            break;
        }
    }
    Ok(None)
}

/// Renews the shares of this node. `registry` runs a function on the registry, under its lock.
pub(crate) async fn tend<S: Store>(
    store: &S,
    now: impl Fn() -> Timestamp,
    registry: impl Fn(&mut dyn FnMut(&mut Registry)),
) {
    let at = now();
    let (mut claim_due, mut first_attempt) = (None, at);
    registry(&mut |it| {
        it.shares.nodes = store.nodes() as u64;
        first_attempt = *it.shares.first_attempt.get_or_insert(at);
        if at.since(it.shares.claimed_at) >= CLAIM_RENEWAL {
            // A claim that may have ended is not continued: another process may have it.
            let place = it.shares.place.filter(|_| at < it.shares.claimed_until);
            claim_due = Some((it.shares.process, place));
        }
    });
    if let Some((process, place)) = claim_due {
        let may_join = at.since(first_attempt) > CLAIM_TTL;
        let claimed = claim(store, process, place, may_join).await;
        registry(&mut |it| it.claimed(&claimed, at));
    }
    let mut errands = Vec::new();
    registry(&mut |it| errands = it.shares.errands(&mut it.buckets, at));
    for errand in errands {
        let sent_at = now();
        let reply = errand.run(store).await;
        registry(&mut |it| it.renewed(&errand, &reply, sent_at));
        if reply.is_err() {
            break;
        }
    }
}

impl Registry {
    fn claimed(&mut self, claimed: &Result<Option<u64>, tollgate::StoreError>, at: Timestamp) {
        self.shares.is_degraded = claimed.is_err();
        match claimed {
            Ok(place) => {
                if self.shares.place.is_some() && *place != self.shares.place {
                    // The quanta are those of the place.
                    for bucket in self.buckets.values_mut() {
                        bucket.share = Share::default();
                        bucket.is_due = true;
                    }
                }
                self.shares.place = *place;
                (self.shares.claimed_at, self.shares.claimed_until) = (at, at + CLAIM_TTL);
            }
            Err(_) => {
                // Buckets without a share get the share of an outage.
                for (key, bucket) in self.buckets.iter_mut().filter(|(_, it)| !it.share.is_known) {
                    bucket.is_due = true;
                    schedule_all(key, bucket, &mut self.streams);
                }
            }
        }
    }

    fn renewed(&mut self, errand: &Errand, reply: &Result<ErrandReply, tollgate::StoreError>, at: Timestamp) {
        self.shares.is_degraded = reply.is_err();
        let (Some(bucket), Ok(reply)) = (self.buckets.get_mut(&errand.key), reply) else { return };
        if self.shares.place != Some(errand.place) {
            return;
        }
        if !bucket.share.is_known {
            schedule_all(&errand.key, bucket, &mut self.streams);
        }
        let share = &mut bucket.share;
        bucket.is_due |= share.held != reply.held || !share.is_known;
        *share = Share {
            goal: share.goal,
            held: reply.held,
            counted: errand.streams,
            fleet_streams: reply.fleet_streams,
            free: reply.free,
            renewed_at: at,
            is_known: true,
        };
    }
}

/// Schedules a bucket for all its proxies.
pub(crate) fn schedule_all(key: &Arc<BucketKey>, bucket: &Bucket, streams: &mut HashMap<u64, Stream>) {
    for seat in &bucket.seats {
        if let Some(stream) = streams.get_mut(&seat.stream) {
            stream.schedule(key);
        }
    }
}

/// The policy in force, with its version.
pub(crate) type PolicyReader = Box<dyn Fn(&mut dyn FnMut(u64, &Policy)) + Send + Sync>;
