//! A demo service that echoes the method and path of requests.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::{SocketAddr, TcpListener};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use tollgate_net::{BindError, Drain, HttpServer, Sockets};

use crate::body::GatewayBody;

/// A demo service on a free local port.
pub struct Demo {
    address: SocketAddr,
    listener: TcpListener,
}

impl Demo {
    /// Binds a free local port.
    pub fn bind() -> Result<Self, BindError> {
        let sockets = Sockets::bind("127.0.0.1:0", 1)?;
        let address = sockets.address();
        let nothing = || BindError::Impossible(address.to_string(), io::Error::other("no listener"));
        let listener = sockets.into_listeners().pop().ok_or_else(nothing)?;
        Ok(Self { address, listener })
    }

    /// Returns the address of the service.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until draining has ended.
    pub async fn serve(self, drain: Drain) -> io::Result<()> {
        HttpServer::default().serve(self.listener, |_| Answer, drain).await
    }
}

struct Answer;

impl Service<Request<Incoming>> for Answer {
    type Response = Response<GatewayBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (method, path) = (request.method(), request.uri().path());
        // hyper accepts no quotes, backslashes or control characters in a method or path.
        let body = format!(
            "{{\"demo\":\"hello from behind the gateway\",\"method\":\"{method}\",\"path\":\"{path}\"}}\n"
        );
        let mut response = Response::new(GatewayBody::full(Bytes::from(body)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        ready(Ok(response))
    }
}
