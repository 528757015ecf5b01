//! Forward auth: a proxy asks whether its client's request may pass.
//!
//! What is decided is the request that the proxy has, and not the one that it
//! makes here. The proxy is believed about it; its client is not, although a
//! proxy passes on whatever the client wrote (`original` says how that is told
//! apart).
//!
//! Slots cannot be held: nobody says here when the request is over. Limits on
//! how many run at once are looked at and refuse nobody.

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
    // A proxy that keeps answers must not keep this one: the next request counts too.
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
    // nginx makes a 500 of a status that it does not know.
    let may_differ = rejection.status() == StatusCode::TOO_MANY_REQUESTS || rejection.is_ambiguous();
    let wish = options.deny.filter(|_| may_differ);
    let rejection = match wish {
        Some(status) => rejection.with_status(status),
        None => rejection,
    };
    let mut response: Response<Bytes> = rejection.response(&parts.headers, settings);
    // Dialects have statuses of their own; a proxy that asks for one knows no other.
    if let Some(status) = wish {
        *response.status_mut() = status;
    }
    rejection.write_headers(response.headers_mut(), settings);
    response.map(Full::new)
}
