//! The quota service of a node.

use std::sync::Arc;
use std::task::Waker;

use http_body::Body;
use parking_lot::Mutex;
use tollgate::store::Store;
use tollgate::{Clock, SharedLimiter};
use tollgate_grpc::Refusal;

use crate::registry::{Outgoing, Registry};
use crate::shares::{self, PolicyReader};
use crate::stream::QuotaStream;
use crate::wire::UsageReports;

/// All streams of a node, and the buckets that they report. Clones share their state.
#[derive(Clone)]
pub struct Quotas(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    clock: Box<dyn Clock>,
    policy: PolicyReader,
}

impl Quotas {
    /// Creates a service without streams. Limits are those of the limiter in force.
    pub fn new<S: Store>(limiter: SharedLimiter<S>, clock: impl Clock) -> Self {
        let is_shared = limiter.load().has_shared_store();
        let registry = Mutex::new(Registry::new(is_shared, clock.now()));
        let policy: PolicyReader = Box::new(move |then| {
            let limiter = limiter.load();
            then(limiter.version(), limiter.policy());
        });
        Self(Arc::new(Inner { registry, clock: Box::new(clock), policy }))
    }

    /// Opens a stream that reads the messages of `body`, unless too many are open.
    pub fn open<B: Body>(&self, body: B) -> Result<QuotaStream<B>, Refusal> {
        let id = self.0.registry.lock().open(self.0.clock.now())?;
        Ok(QuotaStream::new(self.clone(), id, body))
    }

    /// Runs the due work. Call it a few times a second.
    pub fn tick(&self) {
        let now = self.0.clock.now();
        (self.0.policy)(&mut |version, policy| self.0.registry.lock().tick(version, policy, now));
    }

    /// Runs the due work, and renews the shares of this node in a shared store. Call it a few times a
    /// second.
    pub async fn tend<S: Store>(&self, store: &S) {
        if store.is_shared() && self.has_limits() {
            let registry = |then: &mut dyn FnMut(&mut Registry)| then(&mut self.0.registry.lock());
            shares::tend(store, || self.0.clock.now(), registry).await;
        }
        self.tick();
    }

    /// Whether the policy has a limit that is divided. Without one, the store is not called.
    fn has_limits(&self) -> bool {
        let mut has_limits = false;
        (self.0.policy)(&mut |_, policy| {
            has_limits = policy.matched_limits().iter().any(|it| it.bucket_pattern().is_some());
        });
        has_limits
    }

    /// Starts draining: each stream gets its assignments once more, and ends.
    pub fn drain(&self) {
        self.0.registry.lock().drain();
    }

    /// Returns the streams and buckets, for operators.
    pub fn view(&self) -> tollgate_api::Quotas {
        crate::view::view(&self.0.registry.lock(), self.0.clock.now())
    }

    /// Explains a bucket by its entries, `name=search, tenant=acme`. Without a domain, only one may have it. An error
    /// says what to do.
    pub fn explain(
        &self,
        domain: Option<&str>,
        entries: &str,
    ) -> Result<tollgate_api::ExplainedBucket, String> {
        crate::explain::explain(&self.0.registry.lock(), domain, entries, self.0.clock.now())
    }

    /// Appends the metrics in the Prometheus text format.
    pub fn metrics(&self, out: &mut String) {
        crate::metrics::write(&self.0.registry.lock(), out);
    }

    pub(crate) fn report(&self, stream: u64, message: &[u8]) -> Result<(), Refusal> {
        let mut reports = Some(UsageReports::read(message)?);
        let (now, mut result) = (self.0.clock.now(), Ok(()));
        (self.0.policy)(&mut |_, policy| {
            if let Some(reports) = reports.take() {
                result = self.0.registry.lock().report(stream, reports, policy, now);
            }
        });
        result
    }

    pub(crate) fn outgoing(&self, stream: u64, waker: &Waker) -> Outgoing {
        self.0.registry.lock().outgoing(stream, waker, self.0.clock.now())
    }

    pub(crate) fn close(&self, stream: u64) {
        self.0.registry.lock().close(stream, self.0.clock.now());
    }
}

impl std::fmt::Debug for Quotas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quotas").finish_non_exhaustive()
    }
}
