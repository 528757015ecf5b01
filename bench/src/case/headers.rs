//! The rate-limit headers of an admitted request, as lines of HTTP/1.1: the part of the gateway after the decision.
//!
//! The decision is made once, so only its headers are measured.

use std::hint::black_box;
use std::sync::Arc;

use http::HeaderMap;
use tollgate::{Call, Limiter, MemoryStore};
use tollgate_http::{LimitLayer, RawConclusion, RawExchange, RawLimit, RawRequest};

use super::limiter::{CLIENT, PATH, policy};
use crate::contest::{self, Contestant, Expected, Run};
use crate::stream::{Stream as _, Text};
use crate::subject::Offer;

/// Writes the headers of a decision.
pub(super) struct Headers {
    limiter: Arc<Limiter>,
    raw: RawLimit<MemoryStore>,
    keys: Text,
    matching: usize,
}

impl Headers {
    pub(super) fn new(matching: usize) -> Self {
        let limiter =
            Limiter::from_policy(&policy(matching, Offer::Ample)).expect("the policy of limiters is sound");
        let raw = LimitLayer::new(limiter.clone()).raw();
        Self { limiter: Arc::new(limiter), raw, keys: Text::one(), matching }
    }
}

impl Contestant for Headers {
    fn run(&mut self, _: usize, checks: usize) -> Run {
        let call = Call::new("GET", PATH).ip(CLIENT).api_key(self.keys.key(0));
        let decision = self.limiter.check(&call);
        assert_eq!(decision.limits().len(), self.matching, "of the limits apply");
        let (headers, mut out) = (HeaderMap::new(), Vec::new());
        let request = RawRequest {
            method: "GET",
            path: PATH,
            query: None,
            host: "example.com",
            client: None,
            headers: &headers,
        };
        contest::alone(0..checks, |_| {
            let mut exchange = RawExchange {
                request,
                is_head: false,
                out: &mut out,
                write_connection: |_: &mut Vec<u8>| {},
            };
            let concluded = self.raw.conclude(&self.limiter, black_box(&decision), &mut exchange);
            matches!(black_box(&concluded), RawConclusion::Passes(_)).into()
        })
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}
