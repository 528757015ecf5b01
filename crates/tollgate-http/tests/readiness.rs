//! The layer calls only the service instance that was polled ready, as tower requires.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::{Limiter, Policy, SharedLimiter};
use tollgate_http::LimitLayer;
use tower::{Layer as _, Service, ServiceExt as _};

/// Must be polled ready before each call; a clone is not ready.
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been found ready");
        ready(Ok(Response::new(Full::from("hello"))))
    }
}

#[tokio::test]
async fn the_service_that_is_called_is_the_one_that_was_ready() {
    let policy = Policy::parse("limits: [{by: global, bucket: 2/day}]").unwrap();
    let limiter: SharedLimiter = Limiter::new(policy).into();
    let mut service = LimitLayer::new(limiter).layer(Strict { ready: false });
    for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let answer = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
        assert_eq!(answer.status(), expected);
    }
}
