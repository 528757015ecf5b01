//! A request of a test, as the policy sees it.
//!
//! It is shown as the gateway shows one: a real HTTP head, whose client was settled. What a test says
//! of the caller (`user`, `plan`, …) is what somebody's authentication found out, as in `POST /v1/check`;
//! what it leaves unsaid is looked for in the headers, where the policy's `identify` says.
//!
//! Not here: reading it (`file_format::caller`).

use std::fmt;
use std::net::IpAddr;

use http::request::Parts;
use tollgate::policy::{Descriptor, Place};
use tollgate::{Policy, Request};
use tollgate_http::{HttpRequest, client_address};

/// What is asked, and by whom.
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

/// Where a test says what the authentication of a service found out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) plan: Option<Place>,
    pub(crate) claims: Option<Place>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum RequestKind {
    /// A request over HTTP.
    Request(Box<Parts>),
    /// What a proxy describes.
    Descriptor { domain: String, entries: Vec<(String, String)> },
}

/// Where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Nobody knows.
    Nowhere,
    /// This client, settled.
    Client(IpAddr),
    /// Whoever is at the other end of the connection: the policy's `client` and the forwarding
    /// header say who the client is.
    Peer(IpAddr),
}

impl TestRequest {
    /// As a policy sees it.
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

/// For people: `POST /login` or `plan=gold, user=ann`.
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

/// An [`TestRequest`] whose client is settled.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    asked: &'a TestRequest,
    /// `None` of a descriptor.
    http: Option<HttpRequest<'a>>,
    domain: &'a str,
    entries: Vec<(&'a str, &'a str)>,
}

impl View<'_> {
    /// What was said, else what the descriptor says.
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
