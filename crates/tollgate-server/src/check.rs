//! `POST /v1/check` decides about one request, `POST /v1/check/batch` about many.
//!
//! The requests of a batch are decided one after the other and independently: a refusal does not affect
//! the others. A batch with an invalid request is rejected as a whole, before anything is charged.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate::{Call, DetachedPending, Limiter, Store};
use tollgate_api::{BatchRequest, MAX_BATCH_REQUESTS, MAX_METHOD_BYTES};

use crate::api::Inner;
use crate::body::{quoted, read};
use crate::json::{Object, Pairs, Text, Units};
use crate::problem::Problem;
use crate::reply::{Reply, json};

pub(crate) const FIELDS: &[&str] =
    &["method", "path", "ip", "user", "api_key", "tenant", "plan", "host", "headers", "claims", "cost"];

/// A request as the body describes it, which borrows its texts.
pub(crate) type CheckRequest<'b> = tollgate_api::CheckRequest<Text<'b>, Pairs<'b>, Units>;

/// Returns the request as a policy reads it.
pub(crate) fn call<'c>(request: &'c CheckRequest<'_>) -> Result<Call<'c>, Problem> {
    let method = match &request.method {
        Some(method) => valid_method(method.as_str())?,
        None => "GET",
    };
    let path = request.path.as_str();
    if !path.starts_with('/') {
        let path = quoted(path);
        return Err(Problem::senseless(format!("`path` must begin with `/`, and `{path}` does not")));
    }
    let mut call = Call::new(method, path);
    if let Some(ip) = &request.ip {
        let address = ip.as_str().parse::<IpAddr>().map_err(|_| {
            let ip = quoted(ip.as_str());
            Problem::senseless(format!(
                "`ip` is not an address: `{ip}`; write `203.0.113.9` or `2001:db8::1`"
            ))
        })?;
        call = call.ip(address);
    }
    call = apply(call, request.user.as_ref(), Call::user);
    call = apply(call, request.api_key.as_ref(), Call::api_key);
    call = apply(call, request.tenant.as_ref(), Call::tenant);
    call = apply(call, request.plan.as_ref(), Call::plan);
    call = apply(call, request.host.as_ref(), Call::host);
    for (name, value) in request.headers.iter().flat_map(Pairs::iter) {
        call = call.header(name, value);
    }
    for (name, value) in request.claims.iter().flat_map(Pairs::iter) {
        call = call.claim(name, value);
    }
    Ok(match request.cost {
        Some(cost) => call.cost(cost.count()?),
        None => call,
    })
}

fn valid_method(method: &str) -> Result<&str, Problem> {
    if (1..=MAX_METHOD_BYTES).contains(&method.len()) && method.bytes().all(is_token) {
        return Ok(method);
    }
    let method = quoted(method);
    Err(Problem::senseless(format!("`method` is not a valid method: `{method}`; write for example `GET`")))
}

fn apply<'c>(
    call: Call<'c>,
    value: Option<&'c Text<'_>>,
    with: fn(Call<'c>, &'c str) -> Call<'c>,
) -> Call<'c> {
    match value {
        Some(value) => with(call, value.as_str()),
        None => call,
    }
}

/// Whether the byte may occur in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A check whose decision waits for the store.
pub(crate) struct WaitingCheck<S> {
    limiter: Arc<Limiter<S>>,
    pending: DetachedPending<S>,
}

impl<S: Store> Inner<S> {
    pub(crate) async fn check(&self, body: &[u8]) -> Result<Reply, Problem> {
        let mut out = Vec::with_capacity(512);
        if let Some(waiting) = self.try_check(body, &mut out)? {
            // Boxed, so that the futures of other routes do not carry its size.
            Box::pin(self.finish_check(waiting, body, &mut out)).await?;
        }
        Ok(json(out))
    }

    /// Decides and appends the decision, or returns the check if the store has to be waited for. An error charges
    /// nothing.
    pub(crate) fn try_check(
        &self,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<WaitingCheck<S>>, Problem> {
        let request: CheckRequest<'_> = read(body, FIELDS)?;
        let call = call(&request)?;
        let limiter = self.limiter.load();
        let pending = match limiter.try_decide(&call, |decision| self.write_decision(&limiter, decision, out))
        {
            Ok(()) => return Ok(None),
            Err(pending) => pending.detach(),
        };
        Ok(Some(WaitingCheck { limiter, pending }))
    }

    /// Appends the decision about a check. The body is the same.
    pub(crate) async fn finish_check(
        &self,
        WaitingCheck { limiter, pending }: WaitingCheck<S>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let request: CheckRequest<'_> = read(body, FIELDS)?;
        let call = call(&request)?;
        pending.finish(Some(&call), |decision| self.write_decision(&limiter, decision, out)).await;
        Ok(())
    }

    pub(crate) async fn check_batch(&self, body: &[u8]) -> Result<Reply, Problem> {
        let batch: BatchRequest<Object<CheckRequest<'_>>> = read(body, &["requests"])?;
        if batch.requests.len() > MAX_BATCH_REQUESTS {
            let count = batch.requests.len();
            return Err(Problem::senseless(format!(
                "a batch has at most {MAX_BATCH_REQUESTS} requests, and this one has {count}: send several"
            )));
        }
        let about = |(at, Object(request)): (usize, &Object<CheckRequest<'_>>)| {
            call(request).map(drop).map_err(|problem| problem.about(&format!("`requests[{at}]`")))
        };
        batch.requests.iter().enumerate().try_for_each(about)?;
        let limiter = self.limiter.load();
        let mut out = Vec::with_capacity(16 + 512 * batch.requests.len());
        out.extend_from_slice(b"{\"decisions\":[");
        for (at, Object(request)) in batch.requests.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.decide(&limiter, &call(request)?, &mut out).await;
        }
        out.extend_from_slice(b"]}");
        Ok(json(out))
    }

    /// Decides, and writes the decision.
    async fn decide(&self, limiter: &Limiter<S>, call: &Call<'_>, out: &mut Vec<u8>) {
        // A store in this process answers immediately, without a future.
        if let Err(pending) = limiter.try_decide(call, |decision| self.write_decision(limiter, decision, out))
        {
            // Boxed, so that the futures of other routes do not carry its size.
            let decision = Box::pin(pending.finish(Some(call))).await;
            self.write_decision(limiter, &decision, out);
        }
    }
}
