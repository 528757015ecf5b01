//! A request of a test, as the policy sees it.
//!
//! It is built as in the gateway: an HTTP head, with the client address resolved. The caller's properties in a test
//! (`user`, `plan`, …) stand for the result of an authentication, as in `POST /v1/check`. Properties that the test
//! does not state are read from the headers, according to the policy's `identify`.
//!
//! Not here: parsing (`file_format::caller`).

use std::fmt;
use std::net::IpAddr;

use http::request::Parts;
use tollgate::{Descriptor, Policy, Request, Subject};
use tollgate_document::Place;
use tollgate_http::{HttpRequest, client_address};

/// A request and its caller.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    pub(crate) what: RequestKind,
    pub(crate) from: From,
    pub(crate) user: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) claims: Vec<(String, String)>,
    pub(crate) cost: Option<u64>,
    pub(crate) places: Places,
}

/// Places in the file where a test states a plan or claims.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) plan: Option<Place>,
    pub(crate) claims: Option<Place>,
}

/// The kind of a request.
#[derive(Clone, Debug)]
pub(crate) enum RequestKind {
    /// An HTTP request.
    Request(Box<Parts>),
    /// A descriptor, as a proxy sends it.
    Descriptor { domain: String, entries: Vec<(String, String)> },
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Unknown.
    Nowhere,
    /// A client address.
    Client(IpAddr),
    /// The peer of the connection: the policy's `client` and the forwarding header determine the client.
    Peer(IpAddr),
}

impl TestRequest {
    /// Returns the request or descriptor as a policy sees it.
    pub(crate) fn view(&self, policy: &Policy) -> View<'_> {
        match &self.what {
            RequestKind::Request(parts) => {
                let client = match self.from {
                    From::Nowhere => None,
                    From::Client(client) => Some(client),
                    From::Peer(peer) => client_address(Some(peer), &parts.headers, policy.client()),
                };
                View::Request(RequestView { request: self, http: HttpRequest::new(parts, client) })
            }
            RequestKind::Descriptor { domain, entries } => {
                let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                View::Descriptor { domain, entries, cost: self.cost }
            }
        }
    }
}

/// Displays the request: `POST /login` or `plan=gold, user=ann`.
impl fmt::Display for TestRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            RequestKind::Request(parts) => write!(f, "{} {}", parts.method, parts.uri),
            RequestKind::Descriptor { entries, .. } => {
                for (at, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}={value}", if at > 0 { ", " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// A [`TestRequest`] as a policy sees it.
#[derive(Clone, Debug)]
pub(crate) enum View<'a> {
    Request(RequestView<'a>),
    Descriptor { domain: &'a str, entries: Vec<(&'a str, &'a str)>, cost: Option<u64> },
}

impl View<'_> {
    pub(crate) fn subject(&self) -> Subject<'_> {
        match self {
            Self::Request(request) => Subject::Request(request),
            Self::Descriptor { domain, entries, cost } => {
                Subject::Descriptor(Descriptor { domain, entries, cost: *cost })
            }
        }
    }
}

/// An HTTP request with a resolved client address.
#[derive(Clone, Debug)]
pub(crate) struct RequestView<'a> {
    request: &'a TestRequest,
    http: HttpRequest<'a>,
}

impl Request for RequestView<'_> {
    fn method(&self) -> &str {
        self.http.method()
    }

    fn path(&self) -> &str {
        self.http.path()
    }

    fn host(&self) -> Option<&str> {
        self.http.host()
    }

    fn other_host(&self) -> Option<&str> {
        self.http.other_host()
    }

    fn query(&self) -> Option<&str> {
        self.http.query()
    }

    fn client(&self) -> Option<IpAddr> {
        self.http.client()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.http.header(name)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        self.http.header_line(name, index)
    }

    fn user(&self) -> Option<&str> {
        self.request.user.as_deref()
    }

    fn api_key(&self) -> Option<&str> {
        self.request.api_key.as_deref()
    }

    fn tenant(&self) -> Option<&str> {
        self.request.tenant.as_deref()
    }

    fn plan(&self) -> Option<&str> {
        self.request.plan.as_deref()
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.request.claims.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn cost(&self) -> Option<u64> {
        self.request.cost
    }
}
