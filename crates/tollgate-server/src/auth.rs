//! Forward auth: a proxy asks whether its client's request may pass.
//!
//! The decision is about the request that the proxy received, not about the request that it sends here.
//! The proxy is trusted to describe it; its client is not, although a proxy forwards the client's
//! headers (`original` explains how they are told apart).
//!
//! Forward auth cannot hold slots, because the end of the request is not reported. Concurrency limits
//! are only read and never refuse.

mod options;
mod original;

use std::net::IpAddr;

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tollgate::policy::HeaderSettings;
use tollgate::{Decision, DecisionId, Store};
use tollgate_http::{Rejection, RetryAfter, TOLLGATE_SOFT, client_address_behind, soft_value, write_headers};

use self::options::AuthOptions;
use self::original::{NamedRequest, Original};
use crate::api::Inner;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::route::AuthPath;

pub(crate) use self::original::Family;

impl<S: Store> Inner<S> {
    pub(crate) async fn auth(
        &self,
        path: Option<AuthPath<'_>>,
        parts: &Parts,
        peer: IpAddr,
    ) -> Result<Reply, Problem> {
        let options = AuthOptions::of(path, parts)?;
        let named = NamedRequest::of(&parts.headers, options.family)?;
        let limiter = self.limiter.load();
        let policy = limiter.policy();
        let client = client_address_behind(peer, &parts.headers, policy.client());
        let request = Original::new(&named, parts, client)?;
        let decision = limiter.decide_without_slots(&request).await;
        let id = limiter.id_of(&decision);
        self.keep(id, &decision);
        Ok(match Rejection::of(&decision, id, retry_after(&decision, policy.headers())) {
            Some(rejection) => refused(rejection, options, parts, policy.headers()),
            None => admitted(&decision, id, policy.headers()),
        })
    }
}

fn retry_after(decision: &Decision<'_>, settings: &HeaderSettings) -> Option<RetryAfter> {
    let jitter = settings.retry_after_jitter;
    let rng = if jitter > 0 { fastrand::u32(..) } else { 0 };
    RetryAfter::of(decision, jitter, rng)
}

fn admitted(decision: &Decision<'_>, id: DecisionId, settings: &HeaderSettings) -> Reply {
    let mut reply = Response::new(Full::default());
    // A proxy must not cache this response: the next request counts too.
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    write_headers(reply.headers_mut(), decision, id, settings, None);
    if let Some(limits) = soft_value(decision) {
        reply.headers_mut().insert(&TOLLGATE_SOFT, limits);
    }
    reply
}

fn refused(
    rejection: Rejection<'_, '_>,
    options: AuthOptions,
    parts: &Parts,
    settings: &HeaderSettings,
) -> Reply {
    // nginx turns a status that it does not know into 500.
    let may_differ = rejection.status() == StatusCode::TOO_MANY_REQUESTS || rejection.is_ambiguous();
    let wish = options.deny.filter(|_| may_differ);
    let rejection = match wish {
        Some(status) => rejection.with_status(status),
        None => rejection,
    };
    let mut response: Response<Bytes> = rejection.response(&parts.headers, settings);
    // A dialect may have its own status, but a proxy that asks for a status understands no other.
    if let Some(status) = wish {
        *response.status_mut() = status;
    }
    rejection.write_headers(response.headers_mut(), settings);
    response.map(Full::new)
}
