//! The domain `tollgate`: a descriptor describes a request, with the fields of `POST /v1/check`,
//! and is checked against the limits on paths.
//!
//! A proxy that calls the service is thereby limited by the same policy and the same allowances as
//! one behind the Tollgate gateway.
//!
//! The keys come from the configuration of the proxy and may be invalid; the values come from
//! clients and are always accepted.

use std::net::IpAddr;

use tollgate::{Call, Request};
use tollgate_document::sanitize::printable;

use crate::native::{Batch, Part};
use crate::request::RateLimitRequest;
use tollgate_grpc::call::Refusal;

/// The domain whose descriptors describe requests.
pub(crate) const DOMAIN: &str = "tollgate";

const WORDS: &str = "method, path, host, ip (or remote_address), user, api_key, tenant, plan, header:NAME";

impl<'m> Batch<Call<'m>> {
    pub(crate) fn described(request: &RateLimitRequest<'m>) -> Result<Self, Refusal> {
        let mut batch = Self::default();
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            if descriptor.instead.is_some() {
                return Err(Refusal::invalid_argument(
                    "descriptors of the domain `tollgate` take no limit override: the limits are those on paths"
                        .to_owned(),
                ));
            }
            let call = describe(&descriptor.entries)?;
            if !descriptor.gives_back {
                batch.places.push(place);
                batch.parts.push(match request.cost(descriptor) {
                    Some(cost) => call.cost(cost),
                    None => call,
                });
            }
        }
        Ok(batch)
    }
}

/// Returns the request that these entries describe.
pub(crate) fn describe<'m>(entries: &[(&'m str, &'m str)]) -> Result<Call<'m>, Refusal> {
    let of = |word: &str| entries.iter().find(|(key, _)| *key == word).map(|(_, value)| *value);
    // `OPTIONS *` and CONNECT have a path without a leading slash; it is matched as if it had one.
    let mut call = Call::new(of("method").unwrap_or("GET"), of("path").unwrap_or("/"));
    for (key, value) in entries {
        call = match *key {
            "method" | "path" => call,
            "host" => call.host(value),
            // A header of a client may contain anything; an invalid address is treated as unknown.
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
                    let key: String = printable(key).chars().take(64).collect();
                    return Err(Refusal::invalid_argument(format!(
                        "a descriptor of the domain `tollgate` describes a request, and `{key}` is no part of one: use {WORDS}"
                    )));
                }
            },
        };
    }
    Ok(call)
}

impl Part for Call<'_> {
    fn cost(&self) -> Option<u64> {
        Request::cost(self)
    }

    fn costing(&self, cost: u64) -> Self {
        self.clone().cost(cost)
    }
}
