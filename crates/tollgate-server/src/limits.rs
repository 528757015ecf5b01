//! `GET /v1/limits`: the limits of the policy in force.

use std::borrow::Cow;

use tollgate::policy::{self, Allowance, EnvoyMatch, OnOutage};
use tollgate::{Missing, Policy, Rule, Store};
use tollgate_api::{Limit, Limits, PlanQuotas, RegionShare, SlotQueue, Soft};

use crate::api::Inner;
use crate::decision_view::mode;
use crate::mode_overrides::Modes;
use crate::reply::{Reply, json_of};
use crate::stats::live_beside;

fn plan_quotas<'p>((plan, allowance): (&'p str, &Allowance)) -> PlanQuotas<Cow<'p, str>> {
    let (grants, rules) = match allowance {
        Allowance::Rules(rules) => ("limited", &rules[..]),
        Allowance::Unlimited => ("unlimited", &[][..]),
        Allowance::Blocked => ("blocked", &[][..]),
    };
    PlanQuotas { plan: plan.into(), grants: grants.into(), quotas: quotas(rules) }
}

/// Describes the quotas of rules.
fn quotas<'p>(rules: &[Rule]) -> Vec<Cow<'p, str>> {
    rules.iter().map(|rule| tollgate_http::promise(&rule.quota).into()).collect()
}

fn entries(limit: &policy::Limit) -> Vec<Cow<'_, str>> {
    match (limit.descriptor(), limit.envoy_match()) {
        (Some(pattern), _) => words(pattern.entries()),
        (None, Some(envoy_match)) => envoy_match.entries().map(Cow::Borrowed).collect(),
        (None, None) => Vec::new(),
    }
}

/// Returns the regions from which the limit borrows.
pub(crate) fn far_regions(limit: &policy::Limit) -> impl Iterator<Item = &str> {
    let far = limit.rules().first().and_then(|rule| rule.far.as_deref()).unwrap_or_default();
    far.iter().map(|it| &*it.region)
}

fn words<'p>(items: &[impl ToString]) -> Vec<Cow<'p, str>> {
    items.iter().map(|item| item.to_string().into()).collect()
}

fn view<'p>(limit: &'p policy::Limit, policy: &'p Policy, modes: &Modes) -> Limit<Cow<'p, str>> {
    let mut plans: Vec<_> = limit.plans().collect();
    plans.sort_unstable_by_key(|(name, _)| *name);
    let domains = limit.domains().chain(limit.envoy_match().map(EnvoyMatch::domain));
    Limit {
        name: limit.name().into(),
        endpoints: words(limit.endpoints()),
        except: words(limit.except()),
        hosts: words(limit.hosts()),
        methods: limit.methods().map(Cow::Borrowed).collect(),
        descriptor: entries(limit),
        domains: domains.map(Cow::Borrowed).collect(),
        by: words(limit.by()),
        algorithm: match (limit.rules().first(), limit.adaptive()) {
            (Some(rule), _) => rule.quota.algorithm(),
            (None, Some(_)) => "adaptive",
            (None, None) => "none",
        }
        .into(),
        quotas: quotas(limit.rules()),
        ids: limit.rules().iter().map(|rule| format!("{:016x}", rule.id.0).into()).collect(),
        mode: mode(limit.mode()).into(),
        policy_mode: mode(modes.policy_mode(limit.name()).unwrap_or(limit.mode())).into(),
        switched: modes.is_switched(limit.name()),
        candidate_of: live_beside(limit, policy).map(Cow::Borrowed),
        soft: limit.soft().map(|soft| Soft { at: soft.at, tarpit_ms: soft.tarpit.as_millis_ceil() }),
        slot_queue: limit.slot_queue().map(|queue| SlotQueue {
            length: queue.length() as u64,
            wait_ms: queue.wait().as_millis_ceil(),
            fair_by: words(queue.fair_sources()),
        }),
        missing: match limit.missing() {
            Missing::Ip => "ip",
            Missing::Refuse => "refuse",
            Missing::Shared => "shared",
            Missing::Skip => "skip",
        }
        .into(),
        cost: limit.cost().to_string().into(),
        settle: limit.settle().map(|settle| settle.to_string().into()),
        count_denied: limit.count_denied(),
        on_outage: match limit.on_outage() {
            OnOutage::Local => "local",
            OnOutage::Allow => "allow",
            OnOutage::Deny => "deny",
        }
        .into(),
        region: limit.region_share().map(|share| RegionShare {
            name: Cow::Borrowed(&*share.region),
            share: share.percent,
            borrows_from: far_regions(limit).map(Cow::Borrowed).collect(),
        }),
        plans: plans.iter().map(|(name, _)| Cow::Borrowed(*name)).collect(),
        plan_quotas: plans.into_iter().map(plan_quotas).collect(),
        class_quotas: quotas(limit.class_rules()),
    }
}

impl<S: Store> Inner<S> {
    pub(crate) fn list_limits(&self) -> Reply {
        let (limiter, modes) = (self.limiter.load(), self.mode_overrides().modes());
        let policy = limiter.policy();
        let limits = policy.limits().iter().map(|limit| view(limit, policy, &modes)).collect();
        json_of(&Limits { limits })
    }
}
