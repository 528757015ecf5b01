//! Forward auth: a proxy asks whether its client's request may pass.
//!
//! The decision is about the request that the proxy received, not about the request that it sends here.
//! The proxy is trusted to describe it; its client is not, although a proxy forwards the client's
//! headers (`original` explains how they are told apart).
//!
//! The answer about a request that has to wait in the queue of a limit is held for that time (`held`).
//! Its number is bounded with that of all waiting requests.
//!
//! Forward auth cannot hold slots, because the end of the request is not reported. Concurrency limits
//! are only read and never refuse.

mod held;
mod options;
mod original;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tollgate::policy::HeaderSettings;
use tollgate::{Decision, DecisionId, HeldDecision, NotHeld, Store};
use tollgate_http::{
    HoldTime, Rejection, RetryAfter, TOLLGATE_PRIORITY, TOLLGATE_SOFT, client_address_behind, priority_value,
    soft_value, write_headers,
};

use self::held::{AuthAnswer, Queued};
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
    ) -> Result<AuthAnswer<S>, Problem> {
        let options = AuthOptions::of(path, parts)?;
        let named = NamedRequest::of(&parts.headers, options.family)?;
        let limiter = self.limiter.load();
        let policy = limiter.policy();
        let client = client_address_behind(peer, &parts.headers, policy.client());
        let request = Original::new(&named, parts, client)?;
        let decision = limiter.decide_without_slots(&request).await;
        let (id, settings) = (limiter.id_of(&decision), policy.headers());
        let retry_after = RetryAfter::jittered(&decision, settings, || fastrand::u32(..));
        if let Some(rejection) = Rejection::of(&decision, id, retry_after) {
            return Ok(refused(rejection, options, parts, settings).into());
        }
        let Some(place) = limiter.queue_place(&decision) else {
            self.keep(id, &decision);
            return Ok(admitted(&decision, id, settings).into());
        };
        let (wait, rank) = (HoldTime::Exactly(place.wait_time()), decision.rank());
        let Some(held) = self.waiting_room.get().and_then(|room| room.enter(wait, rank)) else {
            let mut unheld = decision.clone();
            limiter.refuse_wait(Some(&request), &mut unheld, Duration::ZERO, NotHeld::NoPlace);
            let reply = refused(full_room(&unheld, id, settings), options, parts, settings);
            // If the store fails here, the limiter refunds when the store is back.
            let _outage = place.leave().await;
            return Ok(reply.into());
        };
        let reply = admitted(&decision, id, settings);
        // No request displaces one of the most important class.
        let displaceable = (rank > 0).then(|| Box::new(limiter.hold_decision(&decision, id)));
        Ok(AuthAnswer { reply, queued: Some(Queued { id, place, held, displaceable }) })
    }

    /// Returns the refusal of a request whose answer was held, and that lost its place in the waiting room. The
    /// arguments are those of [`auth`](Self::auth).
    fn displaced(
        held: &HeldDecision<S>,
        (path, parts, peer): (Option<AuthPath<'_>>, &Parts, IpAddr),
    ) -> Result<Reply, Problem> {
        let options = AuthOptions::of(path, parts)?;
        let named = NamedRequest::of(&parts.headers, options.family)?;
        let (limiter, settings) = (held.limiter(), held.limiter().policy().headers());
        let client = client_address_behind(peer, &parts.headers, limiter.policy().client());
        let request = Original::new(&named, parts, client)?;
        let decision = held.displace(Some(&request));
        Ok(refused(full_room(&decision, limiter.id_of(&decision), settings), options, parts, settings))
    }
}

fn full_room<'d, 'l>(
    decision: &'d Decision<'l>,
    id: DecisionId,
    settings: &HeaderSettings,
) -> Rejection<'d, 'l> {
    Rejection::by_full_room(decision, id, RetryAfter::jittered(decision, settings, || fastrand::u32(..)))
}

fn admitted(decision: &Decision<'_>, id: DecisionId, settings: &HeaderSettings) -> Reply {
    let mut reply = Response::new(Full::default());
    // A proxy must not cache this response: the next request counts too.
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    write_headers(reply.headers_mut(), decision, id, settings, None);
    if let Some(limits) = soft_value(decision) {
        reply.headers_mut().insert(&TOLLGATE_SOFT, limits);
    }
    if let Some(class) = priority_value(decision) {
        reply.headers_mut().insert(&TOLLGATE_PRIORITY, class);
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
    let may_differ = rejection.status() == StatusCode::TOO_MANY_REQUESTS
        || rejection.is_ambiguous()
        || rejection.is_shed();
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
