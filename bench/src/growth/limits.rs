//! `Limiter::check` with more limits in the policy, and with more limits for one request.

use std::fmt::Write as _;
use std::hint::black_box;

use tollgate::{Call, Limiter};

use crate::contest::{self, Contestant, Expected, Run};
use crate::zipf::Rng;

const CLIENT: [u8; 4] = [203, 0, 113, 9];
/// A quota that no run exhausts. It is short: a policy has at most 8 MiB.
const AMPLE: &str = "bucket: 30000000/1d}";
/// Requests before endpoints repeat in the same order.
const REQUESTS: usize = 65_536;

/// The endpoints of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoints {
    /// The same each time, so that everything is in the caches.
    One,
    /// Any endpoint of the policy, at random.
    Any,
}

/// A policy with a limit for each of many endpoints, of which one matches a request.
pub(super) struct InPolicy {
    limiter: Limiter,
    paths: Vec<String>,
}

impl InPolicy {
    pub(super) fn new(limits: usize, endpoints: Endpoints) -> Self {
        let mut policy = String::from("limits:\n");
        for number in 0..limits {
            let _ = writeln!(policy, "  - {{endpoint: {}, by: ip, {AMPLE}", path(number));
        }
        let mut rng = Rng::new();
        let paths = match endpoints {
            Endpoints::One => vec![path(limits / 2)],
            Endpoints::Any => (0..REQUESTS).map(|_| path(rng.below(limits))).collect(),
        };
        let limiter = Limiter::from_policy(&policy).expect("the policy above is valid");
        // Every key is known before the measurement.
        for path in &paths {
            black_box(&limiter.check(&Call::new("GET", path).ip(CLIENT)));
        }
        Self { limiter, paths }
    }
}

fn path(number: usize) -> String {
    format!("/api/v1/resource-{number}/items")
}

impl Contestant for InPolicy {
    fn run(&mut self, from: usize, checks: usize) -> Run {
        let Self { limiter, paths } = self;
        let first = limiter.check(&Call::new("GET", &paths[0]).ip(CLIENT));
        assert_eq!(first.limits().len(), 1, "limits match");
        contest::alone(0..checks, |at| {
            let call = Call::new("GET", &paths[(from + at) % paths.len()]).ip(CLIENT);
            black_box(&limiter.check(black_box(&call))).is_allowed().into()
        })
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}

/// A policy all of whose limits match every request.
pub(super) struct OfRequest {
    limiter: Limiter,
    limits: usize,
}

impl OfRequest {
    pub(super) fn new(limits: usize) -> Self {
        let mut policy = String::from("limits:\n");
        for number in 0..limits {
            let _ = writeln!(policy, "  - {{name: limit-{number}, endpoint: /api/**, by: ip, {AMPLE}");
        }
        Self { limiter: Limiter::from_policy(&policy).expect("the policy above is valid"), limits }
    }
}

impl Contestant for OfRequest {
    fn run(&mut self, _: usize, checks: usize) -> Run {
        let call = Call::new("GET", "/api/v1/resource-5/items").ip(CLIENT);
        assert_eq!(self.limiter.check(&call).limits().len(), self.limits, "limits match");
        contest::alone(0..checks, |_| black_box(&self.limiter.check(black_box(&call))).is_allowed().into())
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}
