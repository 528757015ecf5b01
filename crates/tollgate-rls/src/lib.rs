//! Envoy's rate limit service (RLS v3) over gRPC, on Tollgate's engine.

use tollgate::Store;
use tollgate_http::SharedLimiter;

/// What the service sends besides its verdicts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RlsSettings {}

/// The service. Clones are the same.
pub struct Rls<S> {
    limiter: SharedLimiter<S>,
}

impl<S: Store> Rls<S> {
    /// Decides with this limiter.
    pub fn new(limiter: SharedLimiter<S>, _settings: RlsSettings) -> Self {
        Self { limiter }
    }

    /// The limiter in force.
    pub const fn limiter(&self) -> &SharedLimiter<S> {
        &self.limiter
    }
}

impl<S> Clone for Rls<S> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone() }
    }
}
