//! The domain `tollgate`: a descriptor there describes a request, in the words of
//! `POST /v1/check`, and meets the limits on paths.
//!
//! So a proxy that asks for itself is limited by the same file, and from the same
//! allowances, as one that Tollgate stands in front of.
//!
//! Which parts of a request there are is the proxy's doing, and may be a mistake; what they hold
//! is the client's, and never is one.

use std::net::IpAddr;

use tollgate::Call;

use crate::grpc::Refusal;
use crate::native::{Batch, WithCost};
use crate::request::RateLimitRequest;

/// The domain whose descriptors describe requests.
pub(crate) const DOMAIN: &str = "tollgate";

const WORDS: &str = "method, path, host, ip (or remote_address), user, api_key, tenant, plan, header:NAME";

impl<'m> Batch<Call<'m>> {
    pub(crate) fn described(asked: &RateLimitRequest<'m>) -> Result<Self, Refusal> {
        let mut batch = Self::default();
        for (place, descriptor) in asked.descriptors.iter().enumerate() {
            if descriptor.instead.is_some() {
                return Err(Refusal::senseless(
                    "descriptors of the domain `tollgate` take no limit override: the limits are those on paths"
                        .to_owned(),
                ));
            }
            let call = describe(&descriptor.entries)?;
            if !descriptor.gives_back {
                batch.places.push(place);
                batch.parts.push(match asked.cost(descriptor) {
                    Some(cost) => call.cost(cost),
                    None => call,
                });
            }
        }
        Ok(batch)
    }
}

/// The request that these entries describe.
pub(crate) fn describe<'m>(entries: &[(&'m str, &'m str)]) -> Result<Call<'m>, Refusal> {
    let of = |word: &str| entries.iter().find(|(key, _)| *key == word).map(|(_, value)| *value);
    // `OPTIONS *` and CONNECT have a path that begins with no slash; it is matched as if it did.
    let mut call = Call::new(of("method").unwrap_or("GET"), of("path").unwrap_or("/"));
    for (key, value) in entries {
        call = match *key {
            "method" | "path" => call,
            "host" => call.host(value),
            // A header that a client wrote may hold anything: then the address is not known.
            "ip" | "remote_address" => match value.parse::<IpAddr>() {
                Ok(address) => call.ip(address),
                Err(_) => call,
            },
            "user" => call.user(value),
            "api_key" => call.api_key(value),
            "tenant" => call.tenant(value),
            "plan" => call.plan(value),
            _ => match key.strip_prefix("header:") {
                Some(name) if !name.is_empty() => call.header(name, *value),
                _ => {
                    let key: String = key.escape_debug().take(64).collect();
                    return Err(Refusal::senseless(format!(
                        "a descriptor of the domain `tollgate` describes a request, and `{key}` is no part of one: use {WORDS}"
                    )));
                }
            },
        };
    }
    Ok(call)
}

impl WithCost for Call<'_> {
    fn costing(&self, cost: u64) -> Self {
        self.clone().cost(cost)
    }
}
