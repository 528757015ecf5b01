//! `GET /v1/policy`: the policy as parsed, without its limits.

use http::request::Parts;
use serde::Serialize;
use tollgate::Store;
use tollgate::policy::{Credential, Dialect, ForwardedHeader, IetfHeaders, OnAmbiguous, XRateLimit};

use crate::api::Inner;
use crate::overview::privacy;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};

#[derive(Serialize)]
struct PolicyView {
    version: u64,
    loaded_at: Option<String>,
    limits: usize,
    allow: usize,
    deny: usize,
    client: ClientView,
    identify: IdentifyView,
    headers: HeadersView,
    privacy: &'static str,
    max_keys: u64,
}

#[derive(Serialize)]
struct ClientView {
    trusted_proxies: Vec<String>,
    header: &'static str,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

#[derive(Serialize)]
struct IdentifyView {
    user: Vec<String>,
    api_key: Vec<String>,
    tenant: Vec<String>,
    ambiguous: &'static str,
}

#[derive(Serialize)]
struct HeadersView {
    x_ratelimit: &'static str,
    ietf: &'static str,
    retry_after_jitter: u8,
    dialects: Vec<&'static str>,
    describe: Vec<String>,
}

fn places(places: &[Credential]) -> Vec<String> {
    places.iter().map(ToString::to_string).collect()
}

const fn dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Discord => "discord",
        Dialect::OpenAi => "openai",
        Dialect::Stripe => "stripe",
        Dialect::Aws => "aws",
        Dialect::GitHub => "github",
        Dialect::Envoy => "envoy",
    }
}

impl<S: Store> Inner<S> {
    pub(crate) fn policy(&self, asked: &Parts) -> Result<Reply, Problem> {
        Query::none(asked.uri.query())?;
        let limiter = self.limiter.load();
        let policy = limiter.policy();
        let (client, identify, headers) = (policy.client(), policy.identify(), policy.headers());
        Ok(json_of(&PolicyView {
            version: limiter.version(),
            loaded_at: self.status.loading().0,
            limits: policy.limits().len(),
            allow: policy.allow_entries(),
            deny: policy.deny_entries(),
            client: ClientView {
                trusted_proxies: client.trusted_proxies.iter().map(|net| net.to_string()).collect(),
                header: match client.header {
                    ForwardedHeader::XForwardedFor => "x-forwarded-for",
                    ForwardedHeader::Forwarded => "forwarded",
                    ForwardedHeader::None => "none",
                },
                ipv4_prefix: client.ipv4_prefix,
                ipv6_prefix: client.ipv6_prefix,
            },
            identify: IdentifyView {
                user: places(&identify.user),
                api_key: places(&identify.api_key),
                tenant: places(&identify.tenant),
                ambiguous: match identify.ambiguous {
                    OnAmbiguous::Address => "address",
                    OnAmbiguous::Refuse => "refuse",
                },
            },
            headers: HeadersView {
                x_ratelimit: match headers.x_ratelimit {
                    XRateLimit::Epoch => "epoch",
                    XRateLimit::Delta => "delta",
                    XRateLimit::Off => "off",
                },
                ietf: match headers.ietf {
                    IetfHeaders::Draft11 => "draft-11",
                    IetfHeaders::Draft6 => "draft-6",
                    IetfHeaders::Off => "off",
                },
                retry_after_jitter: headers.retry_after_jitter,
                dialects: headers.dialects.iter().copied().map(dialect).collect(),
                describe: headers.describe.iter().map(ToString::to_string).collect(),
            },
            privacy: privacy(policy.privacy()),
            max_keys: policy.max_keys(),
        }))
    }
}
