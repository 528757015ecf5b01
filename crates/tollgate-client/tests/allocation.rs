//! A call that no limit concerns costs at most one allocation, in the plain API and in the tower layer.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use tollgate_client::{Call, Client, ClientLayer};
use tollgate_testkit::{CountingAllocator, allocations};
use tower_layer::Layer;
use tower_service::Service;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[derive(Clone)]
struct Echo;

impl Service<Request<()>> for Echo {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}

/// Runs a call on warm tables. Returns its allocations.
fn count(mut call: impl FnMut()) -> u64 {
    for _ in 0..10 {
        call();
    }
    allocations(call)
}

#[test]
fn a_call_of_the_plain_api_allocates_nothing() {
    let client = Client::default();
    let (uri, headers): (Uri, _) = (Uri::from_static("http://api.test/items/7"), HeaderMap::new());
    let counted = count(|| {
        let call = Call::new(&Method::GET, &uri, &headers);
        let answer =
            pollster::block_on(client.call(&call, |_| ready(Ok::<_, Infallible>(Response::new(())))));
        assert!(answer.is_ok());
    });
    assert!(counted <= 1, "{counted} allocations");
}

#[test]
fn a_call_of_the_layer_allocates_once() {
    let mut service = ClientLayer::new(Client::default()).layer(Echo);
    let mut context = Context::from_waker(Waker::noop());
    let mut requests: Vec<_> = (0..11)
        .map(|_| {
            let mut request = Request::new(());
            *request.uri_mut() = Uri::from_static("http://api.test/items");
            request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer k"));
            request.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
            request
        })
        .collect();
    let counted = count(|| {
        let request = requests.pop().expect("eleven calls");
        let Poll::Ready(Ok(response)) = service.call(request).as_mut().poll(&mut context) else {
            panic!("the service is ready")
        };
        assert!(response.status().is_success());
    });
    assert!(counted <= 1, "{counted} allocations");
}
