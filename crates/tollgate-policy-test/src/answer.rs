//! The outcome of a request: the decision, and the response that a client sees.
//!
//! `tollgate_http` writes headers and status, as for the gateway, including the policy's dialects. Jitter is
//! disabled, because tests use no randomness.

use http::{HeaderMap, StatusCode};
use tollgate::{Decision, Fate, Limiter, Span};
use tollgate_http::{Rejection, RetryAfter, write_headers};

use crate::request::{RequestKind, TestRequest};

/// A decision with its context.
pub(crate) struct Answer<'a, 'l, S> {
    pub(crate) limiter: &'a Limiter<S>,
    pub(crate) decision: &'a Decision<'l>,
    pub(crate) request: &'a TestRequest,
}

/// The response that a client sees.
pub(crate) struct ClientView {
    /// `None` if the service behind the limiter answers.
    pub(crate) status: Option<StatusCode>,
    /// All headers of a refusal; for an admitted request, the added headers.
    pub(crate) headers: HeaderMap,
}

impl<S> Answer<'_, '_, S> {
    /// Returns the limiting limit and its window, which the headers describe.
    pub(crate) fn limiting(&self) -> Option<(&str, &str)> {
        match self.decision.fate() {
            Fate::Blocked(block) => Some((block.limit.name(), block.limit.name())),
            Fate::Shed(shed) => Some((shed.name(), shed.name())),
            _ => self.decision.limiting().map(|it| (it.limit().name(), it.name())),
        }
    }

    /// Returns the wait that callers are told, in the millisecond resolution of `retry-after-ms`.
    pub(crate) fn wait(&self) -> Option<Span> {
        RetryAfter::of(self.decision, 0, 0).map(|it| Span::from_millis(it.millis()))
    }

    /// Returns the response that a client sees.
    pub(crate) fn worded(&self) -> ClientView {
        let settings = self.limiter.policy().headers();
        let id = self.limiter.id_of(self.decision);
        let wait = RetryAfter::of(self.decision, 0, 0);
        let (Some(rejection), RequestKind::Request(parts)) =
            (Rejection::of(self.decision, id, wait), &self.request.what)
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

    /// Returns the checked limits, each once.
    pub(crate) fn limits(&self) -> Vec<&str> {
        let mut names = Vec::new();
        match self.decision.fate() {
            Fate::Blocked(block) => names.push(block.limit.name()),
            Fate::Shed(shed) => names.push(shed.name()),
            _ => {}
        }
        names.extend(self.decision.limits().map(|it| it.limit().name()));
        names.extend(self.decision.shadowed().iter().map(|it| it.limit.name()));
        each_once(names)
    }

    /// Returns the limits whose soft threshold is reached.
    pub(crate) fn soft(&self) -> Vec<&str> {
        tollgate_http::soft_limits(self.decision).collect()
    }

    /// Returns the limits in shadow mode that would have refused.
    pub(crate) fn would_refuse(&self) -> Vec<&str> {
        let counted = self.decision.limits().filter(|it| !it.is_binding() && !it.outcome().is_admitted());
        let mut names: Vec<_> = counted.map(|it| it.limit().name()).collect();
        names.extend(self.decision.shadowed().iter().map(|it| it.limit.name()));
        each_once(names)
    }
}

/// Removes duplicates: several windows of a limit have one name.
fn each_once(names: Vec<&str>) -> Vec<&str> {
    let mut once: Vec<&str> = Vec::with_capacity(names.len());
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}
