//! `GET /v1/limits`: what the policy in force limits.

use serde::Serialize;
use tollgate::policy::OnOutage;
use tollgate::{Limit, Policy, Store};

use crate::api::Inner;
use crate::reply::{Reply, json};
use crate::told::mode;

#[derive(Serialize)]
struct Told<'p> {
    limits: Vec<ToldLimit<'p>>,
}

#[derive(Serialize)]
struct ToldLimit<'p> {
    name: &'p str,
    endpoints: Vec<String>,
    hosts: Vec<String>,
    methods: Vec<&'p str>,
    by: Vec<String>,
    algorithm: &'static str,
    /// One for each window, in words.
    quotas: Vec<String>,
    /// One for each window: under which a shared store files its keys.
    ids: Vec<String>,
    mode: &'static str,
    count_denied: bool,
    on_outage: &'static str,
    /// Names of plans with numbers of their own.
    plans: Vec<&'p str>,
}

impl<'p> ToldLimit<'p> {
    fn of(limit: &'p Limit) -> Self {
        let mut plans: Vec<_> = limit.plans().map(|(name, _)| name).collect();
        plans.sort_unstable();
        Self {
            name: limit.name(),
            endpoints: limit.endpoints().iter().map(ToString::to_string).collect(),
            hosts: limit.hosts().iter().map(ToString::to_string).collect(),
            methods: limit.methods().collect(),
            by: limit.by().iter().map(ToString::to_string).collect(),
            algorithm: limit.rules().first().map_or("none", |rule| rule.quota.algorithm()),
            quotas: limit.rules().iter().map(|rule| tollgate_http::promise(&rule.quota)).collect(),
            ids: limit.rules().iter().map(|rule| format!("{:016x}", rule.id.0)).collect(),
            mode: mode(limit.mode()),
            count_denied: limit.count_denied(),
            on_outage: match limit.on_outage() {
                OnOutage::Local => "local",
                OnOutage::Allow => "allow",
                OnOutage::Deny => "deny",
            },
            plans,
        }
    }
}

fn told(policy: &Policy) -> Vec<u8> {
    let told = Told { limits: policy.limits().iter().map(ToldLimit::of).collect() };
    serde_json::to_vec(&told).unwrap_or_default()
}

impl<S: Store> Inner<S> {
    pub(crate) fn list_limits(&self) -> Reply {
        json(told(self.limiter.load().policy()))
    }
}
