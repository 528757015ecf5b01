//! The time that a service spends on a request, for limits with a learned number of slots.

use std::fmt;
use std::sync::{Arc, Weak};

use tollgate::InFlight;

/// Measures the time that a service spends on a request, for limits with a learned number of slots.
///
/// It is in the extensions of a request under such a limit. It runs from the call of the service to the head of
/// the response. A service that waits for its caller meanwhile, such as a gateway that forwards a body, stops
/// it: a caller that sends its body slowly would otherwise make the service appear slow, and lower the limit
/// for all callers.
///
/// It keeps no slot. After the end of the request it does nothing.
#[derive(Clone)]
pub struct ServiceTimer(Weak<InFlight>);

impl ServiceTimer {
    pub(crate) fn new(in_flight: &Arc<InFlight>) -> Self {
        Self(Arc::downgrade(in_flight))
    }

    /// Starts the measurement again: from now on, the caller waits for the service.
    pub fn restart(&self) {
        if let Some(in_flight) = self.0.upgrade() {
            in_flight.start();
        }
    }

    /// Stops the measurement: the service waits for the caller. A request that ends now teaches nothing.
    pub fn stop(&self) {
        if let Some(in_flight) = self.0.upgrade() {
            in_flight.stop();
        }
    }
}

impl fmt::Debug for ServiceTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTimer").finish_non_exhaustive()
    }
}
