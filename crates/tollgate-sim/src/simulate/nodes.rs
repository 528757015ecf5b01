//! The nodes that decide: one or several, with separate stores or a shared one.
//!
//! Redis uses its own clock, so it cannot run in virtual time. A shared store is simulated by the in-memory store,
//! which decides as Redis does, to the microsecond (`tollgate-redis/tests/store`). Network delays are not simulated.

use std::hash::{DefaultHasher, Hasher};

use schemars::JsonSchema;
use serde::Serialize;
use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Decision, Limiter, ManualClock, MemoryStore, OutageSettings, Outcome, Request, Rule, Span,
    Store, StoreError, Timestamp,
};

use super::contestant::{Contestant, ContestantError};

/// The most nodes. Each takes the memory of a store.
pub const MAX_NODES: u32 = 64;

/// Where nodes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Stores {
    /// Each node in its own memory, without knowledge of the others.
    #[default]
    Memory,
    /// All nodes in one shared store, such as Redis.
    Shared,
    /// The shared store is unreachable: each node grants its share (`on_outage: local`).
    Outage,
}

/// How a node is chosen for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Routing {
    /// Each node in turn.
    #[default]
    RoundRobin,
    /// Always the same node for a client.
    Sticky,
}

/// The nodes that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Number of nodes.
    pub nodes: u32,
    /// Where they count.
    pub store: Stores,
    /// How a node is chosen.
    pub routing: Routing,
}

impl Default for Network {
    fn default() -> Self {
        Self { nodes: 1, store: Stores::Memory, routing: Routing::RoundRobin }
    }
}

/// The part of a decision that is counted.
pub(super) struct NodeDecision {
    pub(super) admitted: bool,
    pub(super) retry_after: Option<Span>,
    /// The time until an admitted request starts.
    pub(super) wait: Span,
    /// Hash of the key, and the cost.
    pub(super) key: u64,
    pub(super) cost: u64,
}

/// Limiters that share one clock.
pub(super) struct Nodes {
    clock: ManualClock,
    limiters: Limiters,
    routing: Routing,
    next: usize,
    count: usize,
}

enum Limiters {
    Answering(Vec<Limiter<MemoryStore<ManualClock>>>),
    Cut(Vec<Limiter<UnreachableStore>>),
}

impl Nodes {
    /// Creates nodes with stores for this many keys each.
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
        Ok(Self { clock, limiters, routing: network.routing, next: 0, count: count as usize })
    }

    /// Decides a request of a client at a time. `None` if the limit does not apply to it.
    pub(super) fn decide<R: Request + Sync>(
        &mut self,
        request: &R,
        client: u64,
        at: Timestamp,
    ) -> Option<NodeDecision> {
        self.clock.set(at);
        let node = match self.routing {
            Routing::RoundRobin => {
                self.next = (self.next + 1) % self.count;
                self.next
            }
            Routing::Sticky => usize::try_from(client % self.count as u64).unwrap_or(0),
        };
        // All nodes share one limiter on a shared store.
        match &self.limiters {
            Limiters::Answering(all) => ask(&all[node % all.len()], request),
            Limiters::Cut(all) => ask(&all[node % all.len()], request),
        }
    }

    /// Returns the number of evicted keys.
    pub(super) fn evictions(&self) -> u64 {
        match &self.limiters {
            Limiters::Answering(all) => all.iter().map(|it| it.usage().evictions).sum(),
            Limiters::Cut(_) => 0,
        }
    }
}

fn ask<S: Store, R: Request + Sync>(limiter: &Limiter<S>, request: &R) -> Option<NodeDecision> {
    match limiter.try_decide(request, node_decision) {
        Ok(decided) => decided,
        // The unreachable store fails without waiting, so this does not block.
        Err(pending) => node_decision(&pollster::block_on(pending.finish(Some(request)))),
    }
}

fn node_decision(decision: &Decision<'_>) -> Option<NodeDecision> {
    let limit = decision.limits().next()?;
    Some(NodeDecision {
        admitted: decision.is_allowed(),
        retry_after: decision.advised_wait().map(Span::from),
        wait: decision.wait().into(),
        key: hash(limit.key().as_bytes()),
        cost: limit.cost(),
    })
}

/// Returns a hash that is the same in every run and on every machine.
fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// A store that always fails, and knows the number of nodes.
struct UnreachableStore {
    nodes: usize,
}

/// States that nothing was written, so that the decision without the store counts once.
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
