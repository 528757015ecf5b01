//! The streams and buckets of this node, and their bounds.
//!
//! Times are arguments, so that a test can run hours in a moment.
//!
//! Invariant: memory is bounded by the `MAX_` constants, whatever proxies send.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::task::Waker;

use tollgate::policy::Policy;
use tollgate::{Span, Timestamp};
use tollgate_grpc::{Code, Refusal};

use crate::bucket::Bucket;
use crate::shares::{NodeShares, schedule_all};
use crate::terms::Terms;
use crate::wire::{Action, BucketId, MAX_DOMAIN_BYTES, UsageReports};

/// The maximum number of open streams.
pub(crate) const MAX_STREAMS: usize = 4_096;
/// The maximum number of buckets that one stream reports. Further buckets are abandoned.
pub(crate) const MAX_STREAM_BUCKETS: usize = 10_000;
/// The maximum number of buckets of all streams.
pub(crate) const MAX_BUCKETS: usize = 100_000;
/// The maximum number of messages of a stream at once: Envoy sends one for each new bucket.
const MAX_MESSAGE_BURST: u64 = 20_000;
/// The sustained number of messages of a stream per second.
const MESSAGES_PER_SECOND: u64 = 1_000;
/// The maximum number of buckets in one response.
const MAX_RESPONSE_BUCKETS: usize = 1_000;
/// For this long after the start, proxies come back that have assignments of the process before: a
/// report tick of Envoy and a second.
const SETTLING: Span = Span::from_secs(6);

/// A bucket of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BucketKey {
    pub(crate) domain: Box<str>,
    pub(crate) id: BucketId,
}

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    domain: Option<Box<str>>,
    pub(crate) buckets: HashSet<Arc<BucketKey>>,
    /// The buckets of which the proxy is to be told.
    outbox: BTreeSet<Arc<BucketKey>>,
    abandoned: Vec<Arc<BucketKey>>,
    waker: Option<Waker>,
    pub(crate) opened_at: Timestamp,
    /// The messages that may be sent, and the time of the last one.
    messages: (u64, Timestamp),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reports: u64,
    pub(crate) assignments: u64,
    pub(crate) abandoned: u64,
    pub(crate) unknown: u64,
    pub(crate) ignored: u64,
    pub(crate) refused_streams: u64,
}

/// The counts of a limit since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitCounts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) overshoot: u64,
}

/// The next action of a stream.
pub(crate) enum Outgoing {
    /// Send these.
    Actions(Vec<(Arc<BucketKey>, Action)>),
    /// Wait.
    Nothing,
    /// End: the server drains.
    End,
}

/// All streams and buckets of this node.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) buckets: HashMap<Arc<BucketKey>, Bucket>,
    pub(crate) counters: Counters,
    pub(crate) limits: HashMap<Box<str>, LimitCounts>,
    pub(crate) shares: NodeShares,
    next_stream: u64,
    started_at: Timestamp,
    /// The version of the policy that the terms are from.
    version: u64,
    is_draining: bool,
}

impl Registry {
    pub(crate) fn new(is_shared: bool, now: Timestamp) -> Self {
        Self {
            streams: HashMap::new(),
            buckets: HashMap::new(),
            counters: Counters::default(),
            limits: HashMap::new(),
            shares: NodeShares::new(is_shared),
            next_stream: 0,
            started_at: now,
            version: 0,
            is_draining: false,
        }
    }

    /// Opens a stream, unless there are too many.
    pub(crate) fn open(&mut self, now: Timestamp) -> Result<u64, Refusal> {
        if self.streams.len() >= MAX_STREAMS {
            self.counters.refused_streams += 1;
            return Err(exhausted(format!("at most {MAX_STREAMS} streams are open at a time")));
        }
        self.next_stream += 1;
        let stream = Stream {
            domain: None,
            buckets: HashSet::new(),
            outbox: BTreeSet::new(),
            abandoned: Vec::new(),
            waker: None,
            opened_at: now,
            messages: (MAX_MESSAGE_BURST, now),
        };
        self.streams.insert(self.next_stream, stream);
        Ok(self.next_stream)
    }

    /// Closes a stream. Its proxy may use its assignments until they expire.
    pub(crate) fn close(&mut self, stream: u64, now: Timestamp) {
        let Some(closed) = self.streams.remove(&stream) else { return };
        for key in &closed.buckets {
            if let Some(bucket) = self.buckets.get_mut(key) {
                bucket.leave(stream, now);
            }
        }
    }

    fn is_settling(&self, now: Timestamp) -> bool {
        now.since(self.started_at) < SETTLING
    }

    /// Takes a message of a stream.
    pub(crate) fn report(
        &mut self,
        stream: u64,
        reports: UsageReports,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let settling = self.is_settling(now);
        let Some(open) = self.streams.get_mut(&stream) else { return Ok(()) };
        open.count_message(now)?;
        let domain = open.settle_domain(&reports.domain)?;
        self.counters.reports += 1;
        let mut joined = Vec::new();
        for usage in reports.usages {
            if usage.id.is_empty() || !usage.id.is_bounded() {
                self.counters.ignored += 1;
                continue;
            }
            let key = Arc::new(BucketKey { domain: domain.clone(), id: usage.id.clone() });
            let is_known = self.buckets.contains_key(&key);
            let is_full = !open.buckets.contains(&key) && open.buckets.len() >= MAX_STREAM_BUCKETS;
            if is_full || (!is_known && self.buckets.len() >= MAX_BUCKETS) {
                // Abandoned, so that the table of the proxy does not grow either.
                self.counters.ignored += 1;
                if open.abandoned.len() < MAX_STREAM_BUCKETS {
                    open.abandoned.push(key);
                }
                continue;
            }
            let bucket = self
                .buckets
                .entry(Arc::clone(&key))
                .or_insert_with(|| Bucket::new(find_terms(policy, &key), now));
            match &bucket.terms {
                Some(terms) => {
                    let counts = self.limits.entry(terms.limit.clone()).or_default();
                    counts.allowed = counts.allowed.saturating_add(usage.allowed);
                    counts.denied = counts.denied.saturating_add(usage.denied);
                }
                None => self.counters.unknown += 1,
            }
            if bucket.report(stream, &usage, now, settling) {
                joined.push(Arc::clone(&key));
            }
            open.buckets.insert(Arc::clone(&key));
            open.outbox.insert(key);
        }
        // A proxy that is new in a bucket is answered with a share of it; other changes of demand
        // are divided by `tick`, for all reports together.
        for key in joined {
            self.divide(&key, now);
        }
        Ok(())
    }

    /// Divides a bucket, and schedules the changed assignments.
    fn divide(&mut self, key: &Arc<BucketKey>, now: Timestamp) {
        let settling = self.is_settling(now);
        let Some(bucket) = self.buckets.get_mut(key) else { return };
        let budget = self.shares.budget(bucket, now);
        for stream in bucket.divide(budget, now, settling) {
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.schedule(key);
            }
        }
    }

    /// Runs the due work: divisions, expiries, and other terms after a change of the policy.
    pub(crate) fn tick(&mut self, version: u64, policy: &Policy, now: Timestamp) {
        if self.version != version {
            self.version = version;
            self.change_policy(policy, now);
        }
        let mut due = Vec::new();
        let mut idle = Vec::new();
        for (key, bucket) in &mut self.buckets {
            let before = bucket.overshoot;
            bucket.measure(now);
            if let (Some(terms), true) = (&bucket.terms, bucket.overshoot > before) {
                self.limits.entry(terms.limit.clone()).or_default().overshoot += bucket.overshoot - before;
            }
            if bucket.is_due {
                due.push(Arc::clone(key));
            }
            idle.extend(bucket.idle(now).into_iter().map(|stream| (stream, Arc::clone(key))));
        }
        for (stream, key) in idle {
            self.abandon(stream, &key, now);
        }
        for key in due {
            self.divide(&key, now);
        }
        self.buckets.retain(|_, bucket| !bucket.is_unused(now));
    }

    fn abandon(&mut self, stream: u64, key: &Arc<BucketKey>, now: Timestamp) {
        if let Some(bucket) = self.buckets.get_mut(key) {
            bucket.leave(stream, now);
        }
        if let Some(open) = self.streams.get_mut(&stream) {
            self.counters.abandoned += 1;
            open.buckets.remove(key);
            open.outbox.remove(key);
            open.abandoned.push(Arc::clone(key));
            open.wake();
        }
    }

    fn change_policy(&mut self, policy: &Policy, now: Timestamp) {
        for (key, bucket) in &mut self.buckets {
            let terms = find_terms(policy, key);
            if terms == bucket.terms {
                continue;
            }
            bucket.change_terms(terms, now);
            schedule_all(key, bucket, &mut self.streams);
        }
    }

    /// Returns the message that a stream has to send; without a message, its task is woken later.
    pub(crate) fn outgoing(&mut self, stream: u64, waker: &Waker, now: Timestamp) -> Outgoing {
        let Some(open) = self.streams.get_mut(&stream) else { return Outgoing::End };
        let mut actions = Vec::new();
        while actions.len() < MAX_RESPONSE_BUCKETS {
            let Some(key) = open.abandoned.pop() else { break };
            actions.push((key, Action::Abandon));
        }
        while actions.len() < MAX_RESPONSE_BUCKETS {
            let Some(key) = open.outbox.pop_first() else { break };
            // A bucket that is not ready is scheduled again when it is.
            let ready = self.buckets.get_mut(&key).filter(|it| self.shares.is_ready(it));
            if let Some(action) = ready.and_then(|it| it.action(stream, now)) {
                self.counters.assignments += 1;
                actions.push((key, action));
            }
        }
        if !actions.is_empty() {
            return Outgoing::Actions(actions);
        }
        if self.is_draining {
            return Outgoing::End;
        }
        open.waker = Some(waker.clone());
        Outgoing::Nothing
    }

    /// Ends all streams, after a last assignment of each bucket, which the proxy uses until it has
    /// connected elsewhere.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
        for stream in self.streams.values_mut() {
            stream.outbox.extend(stream.buckets.iter().cloned());
            stream.wake();
        }
    }
}

impl Stream {
    pub(crate) fn schedule(&mut self, key: &Arc<BucketKey>) {
        self.outbox.insert(Arc::clone(key));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Counts a message against the rate of messages.
    fn count_message(&mut self, now: Timestamp) -> Result<(), Refusal> {
        let (left, at) = self.messages;
        let refilled = now.since(at).as_micros().saturating_mul(MESSAGES_PER_SECOND) / 1_000_000;
        let left = left.saturating_add(refilled).min(MAX_MESSAGE_BURST);
        // The time moves only with whole messages, so that none is lost by rounding.
        self.messages = (left.saturating_sub(1), if refilled > 0 { now } else { at });
        if left == 0 {
            return Err(exhausted(format!("a stream has at most {MESSAGES_PER_SECOND} messages a second")));
        }
        Ok(())
    }

    /// Returns the domain of the stream, which the first message sets.
    fn settle_domain(&mut self, domain: &str) -> Result<Box<str>, Refusal> {
        match &self.domain {
            Some(known) if domain.is_empty() || **known == *domain => Ok(known.clone()),
            Some(_) => Err(Refusal::invalid_argument(
                "the domain of a stream cannot change: open a stream for each domain".to_owned(),
            )),
            None if domain.is_empty() || domain.len() > MAX_DOMAIN_BYTES => Err(Refusal::invalid_argument(
                format!("the first message of a stream has a domain of 1 to {MAX_DOMAIN_BYTES} bytes"),
            )),
            None => Ok(self.domain.insert(domain.into()).clone()),
        }
    }
}

fn exhausted(message: String) -> Refusal {
    Refusal { code: Code::ResourceExhausted, message }
}

fn find_terms(policy: &Policy, key: &BucketKey) -> Option<Terms> {
    let entries: Vec<(&str, &str)> = key.id.entries().collect();
    policy.match_bucket(&key.domain, &entries).and_then(Terms::of)
}
