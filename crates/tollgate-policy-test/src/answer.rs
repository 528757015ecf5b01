//! What came of a request: the decision, and how a client is told of it.
//!
//! Headers and status are worded by `tollgate_http`, as the gateway does it, with all that the policy says
//! about dialects. Only jitter is left out: tests use no randomness.

use http::{HeaderMap, StatusCode};
use tollgate::{Decision, Fate, Limiter, Span};
use tollgate_http::{Rejection, RetryAfter, write_headers};

use crate::request::{RequestKind, TestRequest};

/// A decision, and what it is about.
pub(crate) struct Answer<'a, 'l, S> {
    pub(crate) limiter: &'a Limiter<S>,
    pub(crate) decision: &'a Decision<'l>,
    pub(crate) asked: &'a TestRequest,
}

/// How a client is told.
pub(crate) struct ClientView {
    /// `None` where the service behind answers.
    pub(crate) status: Option<StatusCode>,
    /// All of a refusal; of what is allowed, those that are added.
    pub(crate) headers: HeaderMap,
}

impl<S> Answer<'_, '_, S> {
    /// The limit that decided, or that matters most, and its window: those that the headers speak of.
    pub(crate) fn limiting(&self) -> Option<(&str, &str)> {
        match self.decision.fate() {
            Fate::Blocked(block) => Some((block.limit.name(), block.limit.name())),
            _ => tollgate_http::limiting(self.decision).map(|it| (it.limit().name(), it.name())),
        }
    }

    /// How long callers are told to wait, to the millisecond that `retry-after-ms` has.
    pub(crate) fn wait(&self) -> Option<Span> {
        RetryAfter::of(self.decision, 0, 0).map(|it| Span::from_millis(it.millis()))
    }

    /// How a client is told.
    pub(crate) fn worded(&self) -> ClientView {
        let settings = self.limiter.policy().headers();
        let id = self.limiter.id_of(self.decision);
        let wait = RetryAfter::of(self.decision, 0, 0);
        let (Some(rejection), RequestKind::Request(parts)) =
            (Rejection::of(self.decision, id, wait), &self.asked.what)
        else {
            let mut headers = HeaderMap::new();
            write_headers(&mut headers, self.decision, id, settings, None);
            return ClientView { status: None, headers };
        };
        let mut response = rejection.response(&parts.headers, settings);
        rejection.write_headers(response.headers_mut(), settings);
        let (head, _) = response.into_parts();
        ClientView { status: Some(head.status), headers: head.headers }
    }

    /// The limits that were asked, each once.
    pub(crate) fn limits(&self) -> Vec<&str> {
        let mut names = Vec::new();
        if let Fate::Blocked(block) = self.decision.fate() {
            names.push(block.limit.name());
        }
        names.extend(self.decision.limits().map(|it| it.limit().name()));
        names.extend(self.decision.shadowed().iter().map(|it| it.limit.name()));
        each_once(names)
    }

    /// The limits whose soft threshold is reached.
    pub(crate) fn soft(&self) -> Vec<&str> {
        tollgate_http::soft_limits(self.decision).collect()
    }

    /// The limits in shadow mode that would have refused.
    pub(crate) fn would_refuse(&self) -> Vec<&str> {
        let counted = self.decision.limits().filter(|it| !it.is_binding() && !it.outcome().is_admitted());
        let mut names: Vec<_> = counted.map(|it| it.limit().name()).collect();
        names.extend(self.decision.shadowed().iter().map(|it| it.limit.name()));
        each_once(names)
    }
}

/// Windows of one limit have one name.
fn each_once(names: Vec<&str>) -> Vec<&str> {
    let mut once: Vec<&str> = Vec::with_capacity(names.len());
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}
