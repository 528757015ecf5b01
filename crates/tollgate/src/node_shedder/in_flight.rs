//! A request in flight.

use std::fmt;

use super::NodeShedder;

/// A request in flight on this node. It is counted until this value is dropped.
#[must_use = "the request is counted until this value is dropped"]
pub struct InFlightGuard(NodeShedder);

impl InFlightGuard {
    pub(super) fn new(shedder: NodeShedder) -> Self {
        shedder.meters().enter();
        Self(shedder)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.meters().leave();
    }
}

impl fmt::Debug for InFlightGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlightGuard").field(&self.0).finish()
    }
}
