//! Who decides: one node or several, on stores of their own or on one.
//!
//! Redis keeps its own time, so it cannot be taken along in virtual time. A store that nodes share is the store in memory here, which decides as
//! Redis does, to the microsecond (`tollgate-redis/tests/store`); what the way there costs is not in the numbers.

use std::future::Future;
use std::hash::{DefaultHasher, Hasher};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Decision, Limiter, ManualClock, MemoryStore, OutageSettings, Outcome, Request, Rule, Span,
    Store, StoreError, Timestamp,
};

use super::contestant::{Contestant, ContestantError};

/// The most nodes: each has a store.
pub const MAX_NODES: u32 = 64;

/// Where nodes keep their counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stores {
    /// Each in its own memory: nobody knows what the others let through.
    #[default]
    Memory,
    /// All in one place, as with Redis.
    Shared,
    /// The one place gives no answer: each node grants its share (`on_outage: local`).
    Outage,
}

/// Which node a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// The next one.
    #[default]
    RoundRobin,
    /// Always the same for a client.
    Sticky,
}

/// The nodes that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// How many.
    pub nodes: u32,
    /// Where they count.
    pub store: Stores,
    /// Who is asked.
    pub routing: Routing,
}

impl Default for Network {
    fn default() -> Self {
        Self { nodes: 1, store: Stores::Memory, routing: Routing::RoundRobin }
    }
}

/// What was decided about a request, as far as it is counted here.
pub(super) struct NodeDecision {
    pub(super) admitted: bool,
    pub(super) retry_after: Option<Span>,
    /// Whose allowance it was, as a hash, and what it cost.
    pub(super) key: u64,
    pub(super) cost: u64,
}

/// Limiters on one clock.
pub(super) struct Nodes {
    clock: ManualClock,
    limiters: Limiters,
    routing: Routing,
    next: usize,
}

enum Limiters {
    Answering(Vec<Limiter<MemoryStore<ManualClock>>>),
    Cut(Vec<Limiter<UnreachableStore>>),
}

impl Nodes {
    /// Nodes for at most so many keys each.
    pub(super) fn new(
        contestant: &Contestant,
        network: Network,
        keys: usize,
        begin: Timestamp,
    ) -> Result<Self, ContestantError> {
        let clock = ManualClock::at(begin);
        let count = network.nodes.clamp(1, MAX_NODES);
        let stores = if network.store == Stores::Shared { 1 } else { count };
        let limiters = if network.store == Stores::Outage {
            let settings = OutageSettings { keys, ..OutageSettings::default() };
            let cut = (0..stores).map(|_| {
                let limiter =
                    Limiter::with_store(contestant.policy()?, UnreachableStore { nodes: count as usize });
                Ok(limiter.with_outage_on(&settings, clock.clone()))
            });
            Limiters::Cut(cut.collect::<Result<_, _>>()?)
        } else {
            let answering = (0..stores).map(|number| {
                let store = MemoryStore::with_seed(keys, clock.clone(), u64::from(number));
                Ok(Limiter::with_store(contestant.policy()?, store))
            });
            Limiters::Answering(answering.collect::<Result<_, _>>()?)
        };
        Ok(Self { clock, limiters, routing: network.routing, next: 0 })
    }

    /// Decides about a request of a client at a time. `None`: no limit counts it.
    pub(super) fn decide<R: Request + Sync>(
        &mut self,
        request: &R,
        client: u64,
        at: Timestamp,
    ) -> Option<NodeDecision> {
        self.clock.set(at);
        let count = match &self.limiters {
            Limiters::Answering(all) => all.len(),
            Limiters::Cut(all) => all.len(),
        };
        let node = match self.routing {
            Routing::RoundRobin => {
                self.next = (self.next + 1) % count;
                self.next
            }
            Routing::Sticky => usize::try_from(client % count as u64).unwrap_or(0),
        };
        match &self.limiters {
            Limiters::Answering(all) => ask(&all[node], request),
            Limiters::Cut(all) => ask(&all[node], request),
        }
    }

    /// How many keys gave way to others because a store was full.
    pub(super) fn evictions(&self) -> u64 {
        match &self.limiters {
            Limiters::Answering(all) => all.iter().map(|it| it.store().usage().evictions).sum(),
            Limiters::Cut(_) => 0,
        }
    }
}

fn ask<S: Store, R: Request + Sync>(limiter: &Limiter<S>, request: &R) -> Option<NodeDecision> {
    if let Some(decided) = limiter.try_decide(request, told) {
        return decided;
    }
    // Neither store waits for anything.
    match pin!(limiter.decide(request)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => told(&decision),
        Poll::Pending => None,
    }
}

fn told(decision: &Decision<'_>) -> Option<NodeDecision> {
    let limit = decision.limits().next()?;
    Some(NodeDecision {
        admitted: decision.is_allowed(),
        retry_after: decision.advised_wait(),
        key: hash(limit.key().as_bytes()),
        cost: limit.cost(),
    })
}

/// The same for the same key, each time and everywhere.
fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// A store that gives no answer, and remembers how many nodes it had.
struct UnreachableStore {
    nodes: usize,
}

/// Nothing was written, so whatever is decided without it counts once.
fn gone() -> StoreError {
    StoreError::Refused("the simulated store is out of reach".into())
}

impl Store for UnreachableStore {
    async fn decide(&self, _: &[Check<'_>]) -> Result<Answer, StoreError> {
        Err(gone())
    }

    async fn adjust(&self, _: &Rule, _: &[u8], _: Adjustment) -> Result<Outcome, StoreError> {
        Err(gone())
    }

    fn nodes(&self) -> usize {
        self.nodes
    }
}
