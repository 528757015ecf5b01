//! One budget for several processes, on a limiter with a policy and a shared store.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollgate::policy::Checks;
use tollgate::{Limiter, MemoryStore, Permit, Spawner, Store};

use crate::budget::{Budget, BudgetRequest, Reservation, ReserveFuture};
use crate::error::GaveUpCause;
use crate::reservation_line::Lines;

/// Reads the actual cost of a call from the head of its response.
type ReadCost = Arc<dyn Fn(StatusCode, &HeaderMap) -> Option<u64> + Send + Sync>;

/// A budget on a limiter: "all workers together at most 500 calls a minute to this API".
///
/// Limits match the method, the host, the path and the headers of outgoing calls, as they match incoming requests in a
/// gateway. An attempt that the server refuses is refunded.
///
/// ```
/// # use tollgate::{Limiter, Spawner};
/// # use tollgate_client::{Client, SharedBudget};
/// let limiter = Limiter::from_policy("limits: [{name: partner, by: global, bucket: 500/minute}]")?;
/// let spawner = Spawner::new(|task| drop(std::thread::spawn(|| pollster::block_on(task))));
/// let client = Client::builder().budget(SharedBudget::new(limiter, spawner)).build();
/// # let _ = client;
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct SharedBudget<S = MemoryStore> {
    limiter: Limiter<S>,
    spawner: Spawner,
    cost: ReadCost,
    lines: Lines,
    hashes: RandomState,
}

impl<S: Store> SharedBudget<S> {
    /// Creates a budget. `spawner` runs the settling of units after a response, such as `tokio::spawn`.
    pub fn new(limiter: Limiter<S>, spawner: Spawner) -> Self {
        let (lines, hashes) = (Lines::default(), RandomState::new());
        Self { limiter, spawner, cost: Arc::new(|_, _| None), lines, hashes }
    }

    /// Returns a number that calls with the same limits and keys share.
    fn line_key(&self, call: &tollgate::Call<'_>) -> u64 {
        let (mut checks, mut hasher) = (Checks::default(), self.hashes.build_hasher());
        self.limiter.policy().match_request(call, &mut checks);
        for check in checks.iter() {
            (check.rule.id, check.key.as_bytes()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Settles each call by a cost that its response states.
    #[must_use]
    pub fn with_cost(
        mut self,
        cost: impl Fn(StatusCode, &HeaderMap) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.cost = Arc::new(cost);
        self
    }
}

impl<S> fmt::Debug for SharedBudget<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBudget").finish_non_exhaustive()
    }
}

impl<S: Store> Budget for SharedBudget<S> {
    fn reserve<'b>(&'b self, request: &'b BudgetRequest, max_wait: Duration) -> ReserveFuture<'b> {
        Box::pin(async move {
            let mut call = tollgate::Call::new(&request.method, &request.path).host(&request.host);
            for (name, value) in &request.headers {
                call = call.header(name.as_str(), value.as_bytes());
            }
            if let Some(cost) = request.cost {
                call = call.cost(cost);
            }
            let _turn = self.lines.enter(self.line_key(&call)).await;
            match self.limiter.acquire_within(&call, max_wait).await {
                Ok(permit) => Ok(Box::new(SharedReservation {
                    permit,
                    spawner: self.spawner.clone(),
                    cost: Arc::clone(&self.cost),
                }) as Box<dyn Reservation>),
                Err(refused) => Err(GaveUpCause::SharedBudget {
                    limit: refused.limiting().map(|limit| limit.name().to_owned()).unwrap_or_default(),
                    ready_in: refused.advised_wait().unwrap_or_default(),
                }),
            }
        })
    }
}

struct SharedReservation<S: Store> {
    permit: Permit<S>,
    spawner: Spawner,
    cost: ReadCost,
}

impl<S: Store> Reservation for SharedReservation<S> {
    fn settle(self: Box<Self>, status: StatusCode, headers: &HeaderMap, is_refusal: bool) {
        let Self { permit, spawner, cost } = *self;
        let cost = cost(status, headers);
        if !is_refusal && cost.is_none() && permit.slots() == 0 {
            return;
        }
        spawner.spawn(async move {
            let settled = match cost {
                _ if is_refusal => permit.refund().await,
                Some(cost) => permit.settle(cost).await,
                None => permit.release().await,
            };
            if let Err(error) = settled {
                tracing::debug!(%error, "the units of a call were not settled");
            }
        });
    }

    fn cancel(self: Box<Self>) {
        let Self { permit, spawner, .. } = *self;
        spawner.spawn(async move {
            if let Err(error) = permit.refund().await {
                tracing::debug!(%error, "the units of a call that was not sent were not given back");
            }
        });
    }
}
