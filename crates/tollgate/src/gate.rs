//! A single limit without a policy: a rule, a store, and keys chosen by the caller.

use tollgate_core::{Adjustment, Amount, Outcome, Quota, Rule};
use tollgate_store::{Check, Clock, MemoryStore, SystemClock};

/// A single limit in this process, for any key.
///
/// ```
/// use tollgate::{FixedWindow, Gate, Rate};
///
/// let gate = Gate::new("sign-ups", FixedWindow::epoch(Rate::per_day(100))?);
/// let outcome = gate.take("203.0.113.9", 1);
/// assert!(outcome.is_admitted());
/// assert_eq!(outcome.remaining, 99);
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
pub struct Gate<C = SystemClock> {
    rule: Rule,
    store: MemoryStore<C>,
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
        Self { rule: Rule::new(name, quota), store }
    }

    /// Spends `cost` units of a key, or refuses without spending.
    #[inline]
    pub fn take(&self, key: impl AsRef<[u8]>, cost: u64) -> Outcome {
        self.store.take(&Check::new(&self.rule, key.as_ref(), cost), self.store.now())
    }

    /// Spends the available units, up to `most`.
    pub fn take_up_to(&self, key: impl AsRef<[u8]>, most: u64) -> Outcome {
        let check = Check { amount: Amount::UpTo(most), ..Check::new(&self.rule, key.as_ref(), most) };
        self.store.take(&check, self.store.now())
    }

    /// Returns the state of a key without spending.
    pub fn peek(&self, key: impl AsRef<[u8]>) -> Outcome {
        self.take(key, 0)
    }

    /// Refunds, grants, charges or resets a key, and returns its state after that.
    pub fn adjust(&self, key: impl AsRef<[u8]>, adjustment: Adjustment) -> Outcome {
        self.store.adjust_now(&self.rule, key.as_ref(), adjustment)
    }

    /// Returns the store.
    pub const fn store(&self) -> &MemoryStore<C> {
        &self.store
    }
}
