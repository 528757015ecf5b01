//! Waiting in the queue of a gate, after the admission.

use std::time::Duration;

use tollgate_core::{Adjustment, ChargeTimes};
use tollgate_store::Clock;

use super::{Admission, Gate};

/// A request that waits in the queue of its key. Its charge is refunded when it is dropped before
/// the request starts.
struct QueuedCharge<'g, C: Clock> {
    gate: &'g Gate<C>,
    key: &'g [u8],
    units: u64,
    charge: ChargeTimes,
}

impl<C: Clock> Drop for QueuedCharge<'_, C> {
    fn drop(&mut self) {
        if self.units > 0 {
            self.gate.adjust(self.key, Adjustment::Refund { units: self.units, charge: self.charge });
        }
    }
}

impl<C: Clock> Gate<C> {
    /// Waits until an admitted request may start.
    pub(super) async fn hold(&self, key: &[u8], admission: Admission) -> Admission {
        if !admission.wait.is_zero() {
            let mut queued =
                QueuedCharge { gate: self, key, units: admission.units, charge: admission.charge() };
            self.sleeper.sleep(admission.wait).await;
            queued.units = 0;
        }
        Admission { wait: Duration::ZERO, ..admission }
    }
}
