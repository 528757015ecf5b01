//! Counts of decisions by priority class.
//!
//! The counts of a class outlive its policy, as those of a limit do. The number of names is bounded:
//! [`MAX_NAMED_CLASSES`] classes are counted separately, and all further ones together as [`OTHER`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::{Policy, PriorityClass};

use crate::counts::{Kind, OTHER};
use crate::stripes::{Stripe, Striped};

/// The number of classes that are counted separately over the lifetime of the process.
const MAX_NAMED_CLASSES: usize = 64;

/// Counts of the decisions about requests of one priority class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCounts {
    /// The name of the class.
    pub name: Arc<str>,
    /// Admitted.
    pub allowed: u64,
    /// Refused, except by a shedder.
    pub refused: u64,
    /// Refused by a shedder, because of overload.
    pub shed: u64,
}

/// The counters of one class.
pub(crate) struct ClassCounter {
    name: Arc<str>,
    /// Allowed, refused, shed.
    cells: Striped<[AtomicU64; 3]>,
}

impl ClassCounter {
    fn new(name: &str) -> Self {
        Self { name: name.into(), cells: Striped::new() }
    }

    #[inline]
    pub(crate) fn count(&self, stripe: Stripe, kind: Kind) {
        stripe.adder.add(&self.cells.at(stripe)[place(kind)], 1);
    }

    /// Takes a count back. The cell of this thread may wrap; the sum over all threads does not.
    pub(crate) fn uncount(&self, stripe: Stripe, kind: Kind) {
        stripe.adder.take_back(&self.cells.at(stripe)[place(kind)]);
    }

    fn counts(&self) -> ClassCounts {
        let cells = |at: usize| self.cells.iter().map(move |cells| cells[at].load(Ordering::Relaxed));
        let sum = |at: usize| cells(at).fold(0, u64::wrapping_add);
        ClassCounts { name: Arc::clone(&self.name), allowed: sum(0), refused: sum(1), shed: sum(2) }
    }
}

/// Returns the place of a kind of decision among the cells.
const fn place(kind: Kind) -> usize {
    match kind {
        Kind::Allowed | Kind::Unlimited => 0,
        Kind::Shed => 2,
        _ => 1,
    }
}

/// The counters of all classes, in the order in which they were first in force.
#[derive(Default)]
pub(crate) struct ClassCounters(Mutex<Vec<Arc<ClassCounter>>>);

impl ClassCounters {
    /// Returns the counters of the classes of a policy, by rank.
    pub(crate) fn of(&self, policy: &Policy) -> Box<[Arc<ClassCounter>]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counter = |class: &PriorityClass| {
            let name = if known.len() < MAX_NAMED_CLASSES || known.iter().any(|it| *it.name == *class.name())
            {
                class.name()
            } else {
                OTHER
            };
            if let Some(counter) = known.iter().find(|it| *it.name == *name) {
                return Arc::clone(counter);
            }
            let counter = Arc::new(ClassCounter::new(name));
            known.push(Arc::clone(&counter));
            counter
        };
        policy.priorities().iter().map(&mut counter).collect()
    }

    /// Returns the counts of all classes.
    pub(crate) fn counts(&self) -> Vec<ClassCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|it| it.counts()).collect()
    }
}
