//! One limit on its own: a rule, a store, and keys you name yourself.

use tollgate_core::{Adjustment, Amount, Outcome, Quota, Rule};
use tollgate_store::{Check, Clock, MemoryStore, SystemClock};

/// One limit, in this process, by any key.
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

/// How many keys a gate keeps unless told otherwise: 30 MB when all are in use.
const DEFAULT_MAX_KEYS: usize = 1_000_000;

impl Gate {
    /// A limit on the system's clock, for a million keys.
    pub fn new(name: &str, quota: impl Into<Quota>) -> Self {
        Self::with_store(name, quota, MemoryStore::new(DEFAULT_MAX_KEYS))
    }
}

impl<C: Clock> Gate<C> {
    /// A limit in a store of your own making: other clock, other bound.
    pub fn with_store(name: &str, quota: impl Into<Quota>, store: MemoryStore<C>) -> Self {
        Self { rule: Rule::new(name, quota), store }
    }

    /// Spends `cost` units of a key, or none.
    #[inline]
    pub fn take(&self, key: impl AsRef<[u8]>, cost: u64) -> Outcome {
        self.store.take(&Check::new(&self.rule, key.as_ref(), cost), self.store.now())
    }

    /// Spends as many units as there are, up to `most`.
    pub fn take_up_to(&self, key: impl AsRef<[u8]>, most: u64) -> Outcome {
        let check = Check { amount: Amount::UpTo(most), ..Check::new(&self.rule, key.as_ref(), most) };
        self.store.take(&check, self.store.now())
    }

    /// How a key stands.
    pub fn peek(&self, key: impl AsRef<[u8]>) -> Outcome {
        self.take(key, 0)
    }

    /// Refunds, grants, charges or resets a key, and says how it stands then.
    pub fn adjust(&self, key: impl AsRef<[u8]>, adjustment: Adjustment) -> Outcome {
        self.store.adjust_now(&self.rule, key.as_ref(), adjustment)
    }

    /// The store underneath.
    pub const fn store(&self) -> &MemoryStore<C> {
        &self.store
    }
}
