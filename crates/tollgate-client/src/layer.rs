//! The client as a tower layer, for any HTTP client that is a `tower::Service`.
//!
//! A request is copied before it is sent if its body can be sent again. The copy of a head with up to
//! [`INLINE_HEADERS`] headers is part of the future, so that a call needs one allocation.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use smallvec::SmallVec;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use crate::call::{CallOptions, head};
use crate::client::{Call, Client};
use crate::error::Error;
use crate::scheduler::NextStep;

/// The headers of a copied request that need no allocation.
const INLINE_HEADERS: usize = 16;

/// The future of a call.
pub type ClientFuture<R, E> = Pin<Box<dyn Future<Output = Result<R, Error<E>>> + Send>>;

/// A body that may be sent again.
pub trait RepeatableBody: Sized {
    /// Returns a copy of a body that has not been sent yet, or `None` if it can be sent only once.
    fn try_repeat(&self) -> Option<Self>;
}

/// Bodies that are values, such as `Full<Bytes>`, are repeated by cloning them.
impl<B: Clone> RepeatableBody for B {
    fn try_repeat(&self) -> Option<Self> {
        Some(self.clone())
    }
}

/// Adds a [`Client`] to a service.
///
/// Bodies must be `Clone`, or implement [`RepeatableBody`] to be sent once. The urgency of a call is read from
/// [`CallOptions`] in the extensions of its request. The timeout bounds waits, and no attempt that is under way: set
/// the timeout of the inner service for that.
#[derive(Clone, Debug, Default)]
pub struct ClientLayer {
    client: Client,
}

impl ClientLayer {
    /// Creates a layer. All of its services share the limits that the client learns.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl<S> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, inner: S) -> ClientService<S> {
        ClientService { client: self.client.clone(), inner }
    }
}

/// A service that paces and retries the calls of another.
#[derive(Clone, Debug)]
pub struct ClientService<S> {
    client: Client,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for ClientService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: RepeatableBody + Send + 'static,
    R: Send,
{
    type Response = Response<R>;
    type Error = Error<S::Error>;
    type Future = ClientFuture<Response<R>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(|source| Error::Failed { tries: 0, source })
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled is the one that is ready.
        let spare = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, spare);
        let client = self.client.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let options = parts.extensions.get::<CallOptions>().copied().unwrap_or_default();
            let (method, uri, headers) = head(&parts);
            let mut session = client.start(&Call::new(method, uri, headers).options(options));
            let mut request = Request::from_parts(parts, body);
            loop {
                let permit = session.permit().await?;
                let spare = request.body().try_repeat().map(|body| (HeadCopy::of(&request), body));
                if session.tries > 1 {
                    let ready = poll_fn(|context| inner.poll_ready(context)).await;
                    ready.map_err(|source| Error::Failed { tries: session.tries, source })?;
                }
                let sent = inner.call(request).instrument(session.span.clone()).await;
                let step = match &sent {
                    Ok(answer) => {
                        permit.answered(answer.status(), answer.headers(), &session, spare.is_some())
                    }
                    Err(_) => permit.failed(&session, spare.is_some()),
                };
                match (step, spare, sent) {
                    (NextStep::Retry(wait), Some((head, body)), sent) => {
                        drop(sent);
                        session.client().sleep(wait).await;
                        request = head.into_request(body);
                    }
                    (_, _, Ok(answer)) => return Ok(answer),
                    (_, _, Err(source)) => return Err(Error::Failed { tries: session.tries, source }),
                }
            }
        })
    }
}

/// The head of a request, to send it again.
struct HeadCopy {
    method: Method,
    uri: Uri,
    version: Version,
    headers: SmallVec<[(HeaderName, HeaderValue); INLINE_HEADERS]>,
    extensions: Extensions,
}

impl HeadCopy {
    fn of<B>(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            extensions: request.extensions().clone(),
        }
    }

    fn into_request<B>(self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.extensions_mut() = self.extensions;
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        headers.extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        *request.headers_mut() = headers;
        request
    }
}
