//! A slot of a gate, as a guard.

use std::fmt;

use tollgate_core::{Adjustment, Owner};
use tollgate_store::{Clock, SystemClock};

use super::Gate;

/// A slot of a [`Gate`], which is released when the permit is dropped.
///
/// A permit of a gate that counts units holds no slot: the unit is spent, and comes back with time.
#[must_use = "a permit that is dropped releases its slot"]
pub struct GatePermit<C: Clock = SystemClock> {
    gate: Gate<C>,
    /// The key and the owner of the slot; `None` without a slot.
    slot: Option<(Box<[u8]>, Owner)>,
}

impl<C: Clock> GatePermit<C> {
    pub(super) fn new(gate: &Gate<C>, key: &[u8], owner: Option<Owner>) -> Self {
        Self { gate: gate.clone(), slot: owner.map(|owner| (key.into(), owner)) }
    }

    /// Keeps the slot until its lease ends, for work whose end this process does not see.
    pub fn forget(mut self) {
        self.slot = None;
    }
}

impl<C: Clock> Drop for GatePermit<C> {
    fn drop(&mut self) {
        if let Some((key, owner)) = self.slot.take() {
            self.gate.adjust(key, Adjustment::Release { owner });
        }
    }
}

impl<C: Clock> fmt::Debug for GatePermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, slot } = self;
        f.debug_struct("GatePermit").field("gate", &gate.name()).field("has_slot", &slot.is_some()).finish()
    }
}
