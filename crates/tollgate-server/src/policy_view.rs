//! `GET /v1/policy`: the policy as parsed, without its limits.

use http::request::Parts;
use tollgate::Store;
use tollgate::policy::{Credential, Dialect, ForwardedHeader, IetfHeaders, OnAmbiguous, XRateLimit};
use tollgate_api::{ClientSettings, HeaderSettings, IdentifySettings, Policy};

use crate::api::Inner;
use crate::overview::privacy;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};

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
    pub(crate) fn policy(&self, parts: &Parts) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        let limiter = self.limiter.load();
        let policy = limiter.policy();
        let (client, identify, headers) = (policy.client(), policy.identify(), policy.headers());
        Ok(json_of(&Policy {
            version: limiter.version(),
            loaded_at: self.status.loading().0,
            limits: policy.limits().len() as u64,
            allow: policy.allow_entries() as u64,
            deny: policy.deny_entries() as u64,
            priorities: policy.priorities().iter().map(|class| class.name().to_owned()).collect(),
            client: ClientSettings {
                trusted_proxies: client.trusted_proxies.iter().map(|net| net.to_string()).collect(),
                header: match client.header {
                    ForwardedHeader::XForwardedFor => "x-forwarded-for",
                    ForwardedHeader::Forwarded => "forwarded",
                    ForwardedHeader::None => "none",
                }
                .to_owned(),
                ipv4_prefix: client.ipv4_prefix,
                ipv6_prefix: client.ipv6_prefix,
            },
            identify: IdentifySettings {
                user: places(&identify.user),
                api_key: places(&identify.api_key),
                tenant: places(&identify.tenant),
                ambiguous: match identify.ambiguous {
                    OnAmbiguous::Address => "address",
                    OnAmbiguous::Refuse => "refuse",
                }
                .to_owned(),
            },
            headers: HeaderSettings {
                x_ratelimit: match headers.x_ratelimit {
                    XRateLimit::Epoch => "epoch",
                    XRateLimit::Delta => "delta",
                    XRateLimit::Off => "off",
                }
                .to_owned(),
                ietf: match headers.ietf {
                    IetfHeaders::Draft11 => "draft-11",
                    IetfHeaders::Draft6 => "draft-6",
                    IetfHeaders::Off => "off",
                }
                .to_owned(),
                retry_after_jitter: headers.retry_after_jitter,
                dialects: headers.dialects.iter().map(|it| dialect(*it).to_owned()).collect(),
                describe: headers.describe.iter().map(ToString::to_string).collect(),
            },
            privacy: privacy(policy.privacy()).to_owned(),
            max_keys: policy.max_keys(),
        }))
    }
}
