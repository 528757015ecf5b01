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
use tollgate::policy::Descriptor;
use tollgate::{Policy, Request};
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
    /// Returns the request as a policy sees it.
    pub(crate) fn view(&self, policy: &Policy) -> View<'_> {
        match &self.what {
            RequestKind::Request(parts) => {
                let client = match self.from {
                    From::Nowhere => None,
                    From::Client(client) => Some(client),
                    From::Peer(peer) => client_address(Some(peer), &parts.headers, policy.client()),
                };
                View {
                    asked: self,
                    http: Some(HttpRequest::new(parts, client)),
                    domain: "",
                    entries: Vec::new(),
                }
            }
            RequestKind::Descriptor { domain, entries } => {
                let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                View { asked: self, http: None, domain, entries }
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

/// A [`TestRequest`] with a resolved client address.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    asked: &'a TestRequest,
    /// `None` for a descriptor.
    http: Option<HttpRequest<'a>>,
    domain: &'a str,
    entries: Vec<(&'a str, &'a str)>,
}

impl View<'_> {
    /// Returns the stated value, else the value of the descriptor entry.
    fn said<'s>(&'s self, said: Option<&'s String>, word: &str) -> Option<&'s str> {
        said.map(String::as_str).or_else(|| self.descriptor()?.value(word))
    }
}

impl Request for View<'_> {
    fn method(&self) -> &str {
        self.http.as_ref().map_or("", Request::method)
    }

    fn path(&self) -> &str {
        self.http.as_ref().map_or("", Request::path)
    }

    fn host(&self) -> Option<&str> {
        self.http.as_ref()?.host()
    }

    fn other_host(&self) -> Option<&str> {
        self.http.as_ref()?.other_host()
    }

    fn query(&self) -> Option<&str> {
        self.http.as_ref()?.query()
    }

    fn client(&self) -> Option<IpAddr> {
        match &self.http {
            Some(http) => http.client(),
            None => self.descriptor()?.client(),
        }
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.http.as_ref()?.header(name)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        self.http.as_ref()?.header_line(name, index)
    }

    fn user(&self) -> Option<&str> {
        self.said(self.asked.user.as_ref(), "user")
    }

    fn api_key(&self) -> Option<&str> {
        self.said(self.asked.api_key.as_ref(), "api_key")
    }

    fn tenant(&self) -> Option<&str> {
        self.said(self.asked.tenant.as_ref(), "tenant")
    }

    fn plan(&self) -> Option<&str> {
        self.said(self.asked.plan.as_ref(), "plan")
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.asked.claims.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn cost(&self) -> Option<u64> {
        self.asked.cost
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        let is_one = self.http.is_none();
        is_one.then_some(Descriptor { domain: self.domain, entries: &self.entries })
    }
}
