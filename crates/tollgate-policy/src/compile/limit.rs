//! One limit: checked as a whole, then assigned its name and its rules.

use std::borrow::Cow;
use std::collections::HashMap;

use tollgate_core::{Quota, Rule, RuleId};
use tollgate_document::{Located, Place, Problems, short};

use super::amount::{Amount, Grant};
use super::regions;
use crate::adaptive::AdaptiveSlots;
use crate::cost::Cost;
use crate::envoy_match::EnvoyMatch;
use crate::file_format::lease::LeaseText;
use crate::file_format::limit as file_format;
use crate::file_format::regions::RegionsText;
use crate::key::Key;
use crate::limit::{Allowance, ChargeTime, Limit, LimitDefinition, RegionShare};
use crate::net::Net;
use crate::pattern::PathPattern;
use crate::settings::{ClientAddress, PathSettings};
use crate::slot_queue::{DEFAULT_WAIT, SlotQueue};
use crate::source::KeySource;

/// A checked limit without a name.
pub(super) struct LimitDraft<'l> {
    limit: &'l file_format::Limit,
    amount: Amount<'l>,
    plans: Vec<(&'l str, Grant)>,
    overrides: Vec<(Key, Grant)>,
}

/// The settings that the keys and amounts of limits depend on.
#[derive(Default)]
pub(super) struct KeySettings {
    pub(super) client: ClientAddress,
    pub(super) paths: PathSettings,
    /// The regions that share limits.
    pub(super) regions: RegionsText,
}

/// Checks a limit. Returns `None` after reporting a problem.
pub(super) fn draft<'l>(
    limit: &'l file_format::Limit,
    settings: &KeySettings,
    problems: &mut Problems,
) -> Option<LimitDraft<'l>> {
    if limit.descriptor.is_none() && limit.rlqs.is_none() {
        keys_exist(limit, problems);
        covers_something(&limit.endpoint, &limit.except, problems);
    }
    if limit.rlqs.is_none() {
        super::descriptor::keys_exist(limit, problems);
    }
    draft_amount(limit, "", settings, problems)
}

/// Checks the candidate of a limit whose keys were checked before.
pub(super) fn draft_candidate<'l>(
    limit: &'l file_format::Limit,
    settings: &KeySettings,
    problems: &mut Problems,
) -> Option<LimitDraft<'l>> {
    draft_amount(limit, " of the candidate", settings, problems)
}

fn draft_amount<'l>(
    limit: &'l file_format::Limit,
    whose: &str,
    settings: &KeySettings,
    problems: &mut Problems,
) -> Option<LimitDraft<'l>> {
    let amount = Amount::of(limit, problems)?;
    match regions::sharing(limit, &settings.regions).and_then(|it| regions::smallest(&amount.base, it)) {
        Some((share, region)) => {
            cost_fits(limit, &share, &format!(", the share of region `{region}`{whose}"), problems);
        }
        None => cost_fits(limit, &amount.base, whose, problems),
    }
    super::lease::fits(limit, &amount.base, problems);
    regions::fits(limit, &amount, &settings.regions, problems);
    let plans = limit.plans.iter();
    let plans =
        plans.filter_map(|(name, text)| Some((&*name.value, amount.granted(text, problems)?))).collect();
    let plans: Vec<(&str, Grant)> = plans;
    for (name, granted) in &plans {
        if let Grant::Quotas(quotas) = granted {
            cost_fits(limit, quotas, &format!(" of plan `{name}`{whose}"), problems);
        }
    }
    let overrides = overrides(limit, &amount, settings, problems);
    Some(LimitDraft { limit, amount, plans, overrides })
}

/// Reports a `path:NAME` that an endpoint lacks: no request to it has that key.
fn keys_exist(limit: &file_format::Limit, problems: &mut Problems) {
    let fair = limit.fair_by.iter().flat_map(|it| it.value.iter().map(|part| (part, it.place)));
    for (part, at) in limit.by.iter().map(|part| (&part.value, part.place)).chain(fair) {
        let KeySource::Path(name) = part else { continue };
        let lacking = limit.endpoint.iter().find(|it| it.value.position(name).is_none());
        let (place, endpoint) = match lacking {
            Some(endpoint) => (Some(endpoint.place), endpoint.value.to_string()),
            None if limit.endpoint.is_empty() => (None, "/**".into()),
            None => continue,
        };
        let problem = problems.error(at, format!("no request to `{endpoint}` has the key `path:{name}`"));
        problem.label(format!("no `{{{name}}}` in the endpoint"));
        if let Some(place) = place {
            problem.related(place, "this endpoint");
        }
        problem.help(format!(
            "name a segment of the endpoint, as in `/users/{{{name}}}`, or count by something else"
        ));
    }
}

/// Reports an exception that covers a whole endpoint.
pub(super) fn covers_something(
    endpoint: &[Located<PathPattern>],
    except: &[Located<PathPattern>],
    problems: &mut Problems,
) {
    let everything = PathPattern::everything();
    let endpoints = endpoint.iter().map(|it| (&it.value, Some(it.place)));
    let endpoints = endpoints.chain(endpoint.is_empty().then_some((&everything, None)));
    for (endpoint, place) in endpoints {
        let Some(except) = except.iter().find(|it| it.value.covers_all_of(endpoint)) else { continue };
        let problem = problems.error(except.place, format!("this exception leaves nothing of `{endpoint}`"));
        problem.label("covers all of it");
        if let Some(place) = place {
            problem.related(place, "this endpoint");
        }
        problem.help("an exception is narrower than the endpoint: `endpoint: /**` and `except: /healthz`");
    }
}

fn cost_fits(limit: &file_format::Limit, base: &[Quota], whose: &str, problems: &mut Problems) {
    let reserve = limit.cost.as_ref().and_then(|it| it.value.reserve.as_ref());
    let Some(Located { value: Cost::Fixed(cost), place }) = reserve else { return };
    let Some(most) = base.iter().map(Quota::capacity).min().filter(|most| cost > most) else { return };
    problems
        .error(*place, format!("a request that costs {cost} never passes a limit of {most}{whose}"))
        .label(format!("at most {most}"))
        .help(if limit.queue.is_some() {
            "a longer queue, or a longer `wait`, lets it pass: a request takes as many places as it costs"
        } else {
            "a larger burst lets it pass: bucket: N/unit, burst B"
        });
}

fn overrides(
    limit: &file_format::Limit,
    amount: &Amount<'_>,
    settings: &KeySettings,
    problems: &mut Problems,
) -> Vec<(Key, Grant)> {
    let Some((first, _)) = limit.overrides.first() else { return Vec::new() };
    let source = match &limit.by[..] {
        [] => return Vec::new(),
        [Located { value: KeySource::Global, .. }] => {
            problems
                .error(first.place, "a global limit has one key, so there is nothing to override")
                .label("change the limit itself");
            return Vec::new();
        }
        [only] => &only.value,
        _ => {
            problems
                .error(first.place, "a key of several parts cannot be overridden")
                .label("this names one value only")
                .help("overrides need a `by` with a single part; `plans` work with any");
            return Vec::new();
        }
    };
    let mut seen: HashMap<Key, Place> = HashMap::with_capacity(limit.overrides.len());
    let mut found = Vec::with_capacity(limit.overrides.len());
    for (name, text) in &limit.overrides {
        let key = match (source, &limit.descriptor) {
            (KeySource::Descriptor, None) => None,
            (KeySource::Descriptor, Some(it)) => super::descriptor::key_of(it, name, problems),
            _ => key_of(source, name, settings, problems),
        };
        let Some(key) = key else { continue };
        if let Some(first) = seen.insert(key.clone(), name.place) {
            problems
                .error(
                    name.place,
                    format!("`{}` names a key that has an override already", short(&name.value)),
                )
                .label("again here")
                .related(first, "first here");
            continue;
        }
        found.extend(amount.granted(text, problems).map(|granted| (key, granted)));
    }
    found
}

/// Returns the key of an override, built like the key of a request.
fn key_of(
    source: &KeySource,
    name: &Located<String>,
    settings: &KeySettings,
    problems: &mut Problems,
) -> Option<Key> {
    let mut key = Key::default();
    if *source != KeySource::Ip {
        if name.value.is_empty() {
            problems
                .error(name.place, "no request has an empty key")
                .help("`missing` says what happens without one");
            return None;
        }
        let value = match source {
            KeySource::Path(_) => settings.paths.path_value(&name.value),
            _ => Cow::Borrowed(&*name.value),
        };
        key.push_value(source, value.as_bytes());
        return Some(key);
    }
    let net = match Net::parse(&name.value) {
        Ok(net) => net,
        Err(mistake) => {
            mistake.report(&tollgate_document::Node::scalar(name), problems);
            return None;
        }
    };
    let client = &settings.client;
    let (whole, prefix) =
        if net.address().is_ipv4() { (32, client.ipv4_prefix) } else { (128, client.ipv6_prefix) };
    if net.prefix() != whole && net.prefix() != prefix {
        problems
            .error(name.place, format!("clients are identified by /{prefix}, not by /{}", net.prefix()))
            .label(format!("an address, or a network of /{prefix}"))
            .help("a network of another size needs its own limit, or an entry of `allow` or `deny`");
        return None;
    }
    key.push_address(Net::around(net.address(), prefix));
    Some(key)
}

/// Returns the queue of a limit with slots.
fn slot_queue(limit: &file_format::Limit) -> Option<Box<SlotQueue>> {
    let queue = limit.queue.as_ref().filter(|_| limit.slots.is_some())?.value;
    let length = usize::try_from(queue.length.value).unwrap_or(usize::MAX);
    let fair_by = limit.fair_by.as_ref().map(|it| it.value.clone()).unwrap_or_default();
    let wait = queue.wait.map_or(DEFAULT_WAIT, |it| it.value);
    Some(Box::new(SlotQueue { fair_by, ..SlotQueue::new(length, wait) }))
}

impl LimitDraft<'_> {
    /// Returns the quota of the first window.
    pub(super) fn quota(&self) -> Option<&Quota> {
        self.amount.base.first()
    }

    /// Builds the limit. `candidate_of` is the index of the live limit, if this is a candidate. `lease`
    /// is that of the store.
    pub(super) fn finish(
        self,
        name: &str,
        candidate_of: Option<usize>,
        lease: Option<LeaseText>,
        regions: &RegionsText,
    ) -> Limit {
        let Self { limit, amount, plans, overrides } = self;
        let counts_refusals = limit.count_denied.is_some_and(|it| it.value);
        let lease = limit.lease.map(|it| it.value).or(lease).filter(|_| !counts_refusals);
        let lease = if candidate_of.is_some() || limit.rlqs.is_some() { None } else { lease };
        let sharing = regions::sharing(limit, regions);
        let by = limit.by.iter().map(|part| part.value.to_string()).collect::<Vec<_>>().join(",");
        // Each amount keeps its own state: the debt of a day is meaningless to a limit that counts
        // by the minute. The coverage (endpoints, methods) is not part of the id and may change
        // without losing state.
        let rules = |variant: &str, quotas: Vec<Quota>| -> Vec<Rule> {
            let several = amount.labels.len() > 1;
            let rule = |(label, quota): (&String, Quota)| {
                let full_name = if several { format!("{name}/{label}") } else { name.to_owned() };
                let words = [name, label, &by, variant];
                if let Some(regions) = sharing {
                    let rule = regions::split(&full_name, words, &quota, regions, lease);
                    // A candidate is compared with the limit, so it is counted in this region alone.
                    return Rule { far: rule.far.filter(|_| candidate_of.is_none()), ..rule };
                }
                Rule {
                    name: full_name.into(),
                    id: RuleId::of(words.into_iter().chain([&*quota.identity()])),
                    lease: lease.and_then(|it| super::lease::ttl(it, &quota)),
                    quota,
                    before: None,
                    far: None,
                }
            };
            amount.labels.iter().zip(quotas).map(rule).collect()
        };
        let allowance = |variant: &str, granted| match granted {
            Grant::Quotas(quotas) => Allowance::Rules(rules(variant, quotas)),
            Grant::Unlimited => Allowance::Unlimited,
            Grant::Blocked => Allowance::Blocked,
        };
        let plan =
            |(name, granted): (&str, Grant)| (name.into(), allowance(&format!("plan {name}"), granted));
        // All overrides share one variant: their keys differ already.
        let exception = |(key, granted): (Key, Grant)| (key, allowance("override", granted));
        let everything = || vec![PathPattern::everything()];
        let endpoints: Vec<_> = limit.endpoint.iter().map(|it| it.value.clone()).collect();
        let cost = limit.cost.as_ref().map(|it| &it.value);
        let charge = limit.charge.map(|it| it.value).unwrap_or_default();
        let (reserve, settle) =
            (cost.and_then(|it| it.reserve.as_ref()), cost.and_then(|it| it.settle.as_ref()));
        let definition = LimitDefinition {
            name: name.into(),
            soft: limit.soft,
            endpoints: if endpoints.is_empty() && limit.descriptor.is_none() && limit.rlqs.is_none() {
                everything()
            } else {
                endpoints
            },
            except: limit.except.iter().map(|it| it.value.clone()).collect(),
            hosts: limit.host.iter().map(|it| it.value.clone()).collect(),
            methods: limit.method.iter().map(|it| it.value.as_str().into()).collect(),
            headers: limit.headers.clone(),
            descriptor: limit.descriptor.as_ref().map(|it| it.value.clone()),
            domains: limit.domain.iter().map(|it| it.value.clone()).collect(),
            envoy_match: limit.rlqs.as_ref().map(|it| EnvoyMatch::new(it.value.domain(), it.value.entries())),
            rlqs: limit.rlqs.as_ref().map(|it| it.value.clone()),
            ahead: limit.quota.map(|it| it.value),
            by: limit.by.iter().map(|it| it.value.clone()).collect(),
            missing: limit.missing.map(|it| it.value).unwrap_or_default(),
            cost: reserve
                .map_or(Cost::Fixed(u64::from(charge == ChargeTime::OnArrival)), |it| it.value.clone()),
            charge,
            owner: limit.owner.as_ref().and_then(|it| match &it.value {
                KeySource::Entry(name) => Some(name.clone()),
                _ => None,
            }),
            settle: settle.map(|it| it.value.clone()),
            count_denied: limit.count_denied.is_some_and(|it| it.value),
            on_outage: limit.on_outage.map(|it| it.value).unwrap_or_default(),
            on_hangup: limit.on_hangup.map(|it| it.value).unwrap_or_default(),
            // A candidate never refuses, so no request waits for it.
            slot_queue: if candidate_of.is_none() { slot_queue(limit) } else { None },
            dialects: limit.dialects.clone(),
            adaptive: limit
                .adaptive
                .map(|it| AdaptiveSlots { ttl: limit.ttl.map_or(it.value.ttl, |ttl| ttl.value), ..it.value }),
            rules: rules("", amount.base.clone()),
            plans: plans.into_iter().map(plan).collect(),
            overrides: overrides.into_iter().map(exception).collect(),
            region_share: sharing.map(|it| {
                let (region, percent) = &it.shares[it.here];
                RegionShare { region: region.as_str().into(), percent: *percent }
            }),
            blocks_keys: false,
            sheds: false,
            class_rules: Vec::new(),
        };
        let mode = limit.mode.map(|it| it.value).unwrap_or_default();
        Limit { candidate_of, ..Limit::new(definition, mode) }
    }
}
