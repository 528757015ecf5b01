//! A single limit without a policy: a rule, a store, and keys chosen by the caller.
//!
//! Answers are in `outcome`, slots in `permit`, waiting in `wait` and `waiters`.

mod hold;
mod outcome;
mod permit;
mod wait;
mod waiters;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Adjustment, Amount, Overdraft, Quota, Rule, Timestamp};
use tollgate_store::{Check, Clock, MemoryStore, SystemClock};

use self::outcome::admission;
pub use self::outcome::{Admission, Refusal, Snapshot};
pub use self::permit::GatePermit;
use self::wait::Wait;
use self::waiters::Waiters;
use crate::owners::Owners;
use crate::timer::Sleeper;

/// A single limit in this process, for any key. Clones share their keys.
///
/// ```
/// use tollgate::{Bucket, Gate, Rate};
///
/// let exports = Gate::new("exports", Bucket::new(Rate::per_hour(5))?);
/// match exports.check("customer-7") {
///     Ok(admission) => println!("exporting; {} left", admission.remaining),
///     Err(refusal) => println!("{refusal}"),          // refused by the limit of 5: try again in 12 min
/// }
/// assert!(exports.check_n("customer-7", 4).is_ok());
/// assert!(exports.check("customer-7").is_err());
/// assert!(exports.check("customer-8").is_ok());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
///
/// A caller can also wait. [`until_ready`](Self::until_ready) needs no runtime: see
/// [`with_sleeper`](Self::with_sleeper).
///
/// ```
/// # use tollgate::{Bucket, Gate, Rate};
/// # pollster::block_on(async {
/// let outbound = Gate::new("outbound", Bucket::new(Rate::per_second(100))?.with_burst(1)?);
/// for _ in 0..3 {
///     outbound.until_ready("api.example.com").await?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// With [`Concurrency`](crate::Concurrency), a gate limits how many callers work at the same time:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Concurrency, Gate};
///
/// let jobs = Gate::new("jobs", Concurrency::new(1, Duration::from_secs(60))?);
/// let permit = jobs.acquire("customer-7")?;
/// assert!(jobs.acquire("customer-7").is_err());
/// drop(permit);
/// assert!(jobs.acquire("customer-7").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gate<C = SystemClock> {
    shared: Arc<Shared<C>>,
    sleeper: Sleeper,
}

struct Shared<C> {
    rule: Rule,
    store: MemoryStore<C>,
    owners: Owners,
    waiters: Waiters,
}

/// The default number of keys: 30 MB when all are in use.
const DEFAULT_MAX_KEYS: usize = 1_000_000;

impl Gate {
    /// Creates a limit on the system clock, for a million keys.
    pub fn new(name: &str, quota: impl Into<Quota>) -> Self {
        Self::with_store(name, quota, MemoryStore::new(DEFAULT_MAX_KEYS))
    }
}

impl<C: Clock> Gate<C> {
    /// Creates a limit on the given store, with its clock and its bound on keys.
    pub fn with_store(name: &str, quota: impl Into<Quota>, store: MemoryStore<C>) -> Self {
        let (owners, waiters) = (Owners::default(), Waiters::default());
        let shared = Shared { rule: Rule::new(name, quota), store, owners, waiters };
        Self { shared: Arc::new(shared), sleeper: Sleeper::default() }
    }

    /// Sets the function that sleeps, such as `Sleeper::new(tokio::time::sleep)`, instead of a
    /// timer thread.
    #[must_use]
    pub fn with_sleeper(self, sleeper: Sleeper) -> Self {
        Self { sleeper, ..self }
    }

    /// Returns the name of the limit.
    pub fn name(&self) -> &str {
        &self.shared.rule.name
    }

    /// Spends one unit of a key, or refuses without spending.
    #[inline]
    pub fn check(&self, key: impl AsRef<[u8]>) -> Result<Admission, Refusal> {
        self.check_n(key, 1)
    }

    /// Spends `units` units of a key, or refuses without spending.
    ///
    /// A gate of slots has no units, and refuses: see [`acquire`](Self::acquire).
    #[inline]
    pub fn check_n(&self, key: impl AsRef<[u8]>, units: u64) -> Result<Admission, Refusal> {
        self.take(key.as_ref(), Amount::Exactly(units))
    }

    /// Spends the available units, up to `max_units`. [`Admission::units`] is their number.
    pub fn check_up_to(&self, key: impl AsRef<[u8]>, max_units: u64) -> Result<Admission, Refusal> {
        self.take(key.as_ref(), Amount::UpTo(max_units))
    }

    /// Returns the state of a key without spending.
    pub fn peek(&self, key: impl AsRef<[u8]>) -> Snapshot {
        self.outcome(key.as_ref(), Amount::Exactly(0), self.now()).into()
    }

    /// Acquires a slot of a key, or refuses. The slot is released when the permit is dropped, or
    /// when its lease ends. A gate that counts units spends one. A gate with a queue refuses where the
    /// caller would have to wait, and [`acquire_when_ready`](Self::acquire_when_ready) waits.
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Result<GatePermit<C>, Refusal> {
        let (key, amount) = (key.as_ref(), self.slot_or_unit());
        let admission = self.take(key, amount)?;
        self.refuse_wait(key, admission, Duration::ZERO).map(|_| self.permit(key, amount))
    }

    /// Waits until a key has one unit, and spends it.
    ///
    /// Tasks that wait for the same key pass in the order of their arrival, and units that come back
    /// wake only the first of them. Calls of [`check`](Self::check) do not queue. A task whose future
    /// is dropped leaves the queue and spends nothing. If the gate has a queue
    /// ([`Bucket::with_queue`](crate::Bucket::with_queue)), the task waits for its turn there, too.
    ///
    /// The refusal says that waiting does not help.
    pub async fn until_ready(&self, key: impl AsRef<[u8]>) -> Result<Admission, Refusal> {
        self.until_ready_n(key, 1).await
    }

    /// Waits until a key has `units` units, and spends them, as [`until_ready`](Self::until_ready)
    /// does. A task that waits for many units holds back those behind it.
    pub async fn until_ready_n(&self, key: impl AsRef<[u8]>, units: u64) -> Result<Admission, Refusal> {
        self.wait_for(key.as_ref(), Amount::Exactly(units), None).await
    }

    /// Waits as [`until_ready_n`](Self::until_ready_n) does, for at most `max_wait`. Refuses as soon
    /// as it is known that the units come back later.
    pub async fn wait(
        &self,
        key: impl AsRef<[u8]>,
        units: u64,
        max_wait: Duration,
    ) -> Result<Admission, Refusal> {
        self.wait_for(key.as_ref(), Amount::Exactly(units), Some(max_wait)).await
    }

    /// Waits until a slot of a key is free, and acquires it. Tasks pass in the order of their
    /// arrival, as in [`until_ready`](Self::until_ready).
    pub async fn acquire_when_ready(&self, key: impl AsRef<[u8]>) -> Result<GatePermit<C>, Refusal> {
        let (key, amount) = (key.as_ref(), self.slot_or_unit());
        self.wait_for(key, amount, None).await.map(|_| self.permit(key, amount))
    }

    /// Waits as [`acquire_when_ready`](Self::acquire_when_ready) does, for at most `max_wait`.
    pub async fn acquire_within(
        &self,
        key: impl AsRef<[u8]>,
        max_wait: Duration,
    ) -> Result<GatePermit<C>, Refusal> {
        let (key, amount) = (key.as_ref(), self.slot_or_unit());
        self.wait_for(key, amount, Some(max_wait)).await.map(|_| self.permit(key, amount))
    }

    /// Refunds the charge of an admission to its key, as if the request had not been made.
    pub fn refund(&self, key: impl AsRef<[u8]>, admission: Admission) -> Snapshot {
        self.settle(key, admission, 0)
    }

    /// Charges the actual cost of a request to the key of its admission, in place of the charged
    /// units. An excess is refunded. A shortfall is charged even if the units are not available, and
    /// repaid before the next request passes.
    ///
    /// ```
    /// # use tollgate::{Bucket, Gate, Rate};
    /// let tokens = Gate::new("tokens", Bucket::new(Rate::per_minute(1_000))?);
    /// let reserved = tokens.check_n("ann", 500)?;
    /// tokens.settle("ann", reserved, 120);
    /// assert_eq!(tokens.peek("ann").remaining, 880);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::needless_pass_by_value, reason = "an admission is settled once")]
    pub fn settle(&self, key: impl AsRef<[u8]>, admission: Admission, cost: u64) -> Snapshot {
        let units = admission.units;
        let adjustment = if cost <= units {
            Adjustment::Refund { units: units - cost, charge: admission.charge() }
        } else {
            Adjustment::Charge { units: cost - units, overdraft: Overdraft::OneCapacity }
        };
        self.adjust(key, adjustment)
    }

    /// Refunds, grants, charges or resets a key, and returns its state after that.
    pub fn adjust(&self, key: impl AsRef<[u8]>, adjustment: Adjustment) -> Snapshot {
        let outcome = self.shared.store.adjust_now(&self.shared.rule, key.as_ref(), adjustment);
        self.shared.waiters.wake_first(key.as_ref());
        outcome.into()
    }

    /// Returns the number of tasks that wait for a key.
    pub fn waiting(&self) -> usize {
        self.shared.waiters.len()
    }

    /// Returns the store, for its clock and its memory use.
    pub fn store(&self) -> &MemoryStore<C> {
        &self.shared.store
    }

    #[inline]
    fn take(&self, key: &[u8], amount: Amount) -> Result<Admission, Refusal> {
        let now = self.now();
        admission(self.outcome(key, amount, now), now)
    }

    #[inline]
    fn outcome(&self, key: &[u8], amount: Amount, now: Timestamp) -> tollgate_core::Outcome {
        let check = Check { amount, ..Check::new(&self.shared.rule, key, 0) };
        self.shared.store.take(&check, now)
    }

    #[inline]
    fn now(&self) -> Timestamp {
        self.shared.store.now()
    }

    fn waiters(&self) -> &Waiters {
        &self.shared.waiters
    }

    async fn wait_for(
        &self,
        key: &[u8],
        amount: Amount,
        max_wait: Option<Duration>,
    ) -> Result<Admission, Refusal> {
        let admission = Wait::new(self, key, amount, max_wait).await?;
        Ok(self.hold(key, admission).await)
    }

    /// Refunds an admission that has to wait for longer than `max_wait`, and refuses it.
    fn refuse_wait(
        &self,
        key: &[u8],
        admission: Admission,
        max_wait: Duration,
    ) -> Result<Admission, Refusal> {
        let too_long = admission.wait.saturating_sub(max_wait);
        if too_long.is_zero() {
            return Ok(admission);
        }
        let Snapshot { limit, remaining, reset_after } = self.refund(key, admission);
        Err(Refusal { retry_after: Some(too_long), limit, remaining, reset_after })
    }

    /// Returns the amount that a permit stands for.
    fn slot_or_unit(&self) -> Amount {
        match self.shared.rule.quota {
            Quota::Concurrency(_) => Amount::Slot(self.shared.owners.next()),
            _ => Amount::Exactly(1),
        }
    }

    fn permit(&self, key: &[u8], amount: Amount) -> GatePermit<C> {
        let owner = if let Amount::Slot(owner) = amount { Some(owner) } else { None };
        GatePermit::new(self, key, owner)
    }
}

impl<C> Clone for Gate<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), sleeper: self.sleeper.clone() }
    }
}

impl<C> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { rule, .. } = &*self.shared;
        f.debug_struct("Gate").field("name", &rule.name).field("quota", &rule.quota).finish_non_exhaustive()
    }
}
