//! `GET /v1/limits`: the limits of the policy in force.

use serde::Serialize;
use tollgate::policy::{Allowance, EnvoyMatch, OnOutage};
use tollgate::{Limit, Missing, Policy, Rule, Store};

use crate::api::Inner;
use crate::decision_view::mode;
use crate::mode_overrides::Modes;
use crate::reply::{Reply, json_of};
use crate::stats::live_beside;

#[derive(Serialize)]
struct LimitsResponse<'p> {
    limits: Vec<LimitView<'p>>,
}

#[derive(Serialize)]
struct LimitView<'p> {
    name: &'p str,
    endpoints: Vec<String>,
    /// Paths of its endpoints that the limit does not cover.
    except: Vec<String>,
    hosts: Vec<String>,
    methods: Vec<&'p str>,
    /// The entries of the descriptors that it covers; empty for a limit on paths.
    descriptor: Vec<String>,
    domains: Vec<&'p str>,
    by: Vec<String>,
    algorithm: &'static str,
    /// One description for each window.
    quotas: Vec<String>,
    /// The rule id of each window, which prefixes its keys in a shared store.
    ids: Vec<String>,
    /// The mode in force.
    mode: &'static str,
    /// The mode in the policy file.
    policy_mode: &'static str,
    switched: bool,
    candidate_of: Option<&'p str>,
    soft: Option<SoftView>,
    missing: &'static str,
    cost: String,
    /// The source of the final cost of a request.
    settle: Option<String>,
    count_denied: bool,
    on_outage: &'static str,
    /// The plans that have their own quotas.
    plans: Vec<&'p str>,
    /// The quotas of these plans.
    plan_quotas: Vec<PlanView<'p>>,
}

/// The quota of a limit for one plan.
#[derive(Serialize)]
struct PlanView<'p> {
    plan: &'p str,
    /// `limited`, `unlimited` or `blocked`.
    grants: &'static str,
    /// One description for each window; empty if the plan is not counted.
    quotas: Vec<String>,
}

impl<'p> PlanView<'p> {
    fn new((plan, allowance): (&'p str, &Allowance)) -> Self {
        let (grants, rules) = match allowance {
            Allowance::Rules(rules) => ("limited", &rules[..]),
            Allowance::Unlimited => ("unlimited", &[][..]),
            Allowance::Blocked => ("blocked", &[][..]),
        };
        Self { plan, grants, quotas: quotas(rules) }
    }
}

/// Describes the quotas of rules.
fn quotas(rules: &[Rule]) -> Vec<String> {
    rules.iter().map(|rule| tollgate_http::promise(&rule.quota)).collect()
}

#[derive(Serialize)]
struct SoftView {
    at: u8,
    tarpit_ms: u64,
}

fn entries(limit: &Limit) -> Vec<String> {
    match (limit.descriptor(), limit.envoy_match()) {
        (Some(pattern), _) => pattern.entries().iter().map(ToString::to_string).collect(),
        (None, Some(envoy_match)) => envoy_match.entries().map(str::to_owned).collect(),
        (None, None) => Vec::new(),
    }
}

impl<'p> LimitView<'p> {
    fn of(limit: &'p Limit, policy: &'p Policy, modes: &Modes) -> Self {
        let mut plans: Vec<_> = limit.plans().collect();
        plans.sort_unstable_by_key(|(name, _)| *name);
        Self {
            name: limit.name(),
            endpoints: limit.endpoints().iter().map(ToString::to_string).collect(),
            except: limit.except().iter().map(ToString::to_string).collect(),
            hosts: limit.hosts().iter().map(ToString::to_string).collect(),
            methods: limit.methods().collect(),
            descriptor: entries(limit),
            domains: limit.domains().chain(limit.envoy_match().map(EnvoyMatch::domain)).collect(),
            by: limit.by().iter().map(ToString::to_string).collect(),
            algorithm: limit.rules().first().map_or("none", |rule| rule.quota.algorithm()),
            quotas: quotas(limit.rules()),
            ids: limit.rules().iter().map(|rule| format!("{:016x}", rule.id.0)).collect(),
            mode: mode(limit.mode()),
            policy_mode: mode(modes.policy_mode(limit.name()).unwrap_or(limit.mode())),
            switched: modes.is_switched(limit.name()),
            candidate_of: live_beside(limit, policy),
            soft: limit.soft().map(|soft| SoftView { at: soft.at, tarpit_ms: soft.tarpit.as_millis_ceil() }),
            missing: match limit.missing() {
                Missing::Ip => "ip",
                Missing::Refuse => "refuse",
                Missing::Shared => "shared",
                Missing::Skip => "skip",
            },
            cost: limit.cost().to_string(),
            settle: limit.settle().map(ToString::to_string),
            count_denied: limit.count_denied(),
            on_outage: match limit.on_outage() {
                OnOutage::Local => "local",
                OnOutage::Allow => "allow",
                OnOutage::Deny => "deny",
            },
            plans: plans.iter().map(|(name, _)| *name).collect(),
            plan_quotas: plans.into_iter().map(PlanView::new).collect(),
        }
    }
}

impl<S: Store> Inner<S> {
    pub(crate) fn list_limits(&self) -> Reply {
        let (limiter, modes) = (self.limiter.load(), self.mode_overrides().modes());
        let policy = limiter.policy();
        let limits = policy.limits().iter().map(|limit| LimitView::of(limit, policy, &modes)).collect();
        json_of(&LimitsResponse { limits })
    }
}
