//! Domains of envoyproxy/ratelimit files, decided with its semantics.
//!
//! - Each descriptor is decided on its own: all are counted, even if one is over its limit, and
//!   refused hits count too.
//! - A status has the state of the counter after the hits: over the limit if the count exceeds
//!   `requests_per_unit`, with nothing remaining.
//! - A limit in shadow mode reports OK with nothing remaining. A limit in quota mode refuses the
//!   request only if all limits in quota mode do.
//! - A limit that another limit of the same request `replaces` is neither checked nor counted.
//! - An override counts with its own quota in the counter of the descriptor. An invalid unit is
//!   refused before anything is counted.
//! - Refunded hits, which envoyproxy/ratelimit does not support, lower the count.
//!
//! Not here: finding the limit of a descriptor (`tollgate_envoy`).

use std::time::Duration;

use serde_json::{Map, Value};
use smallvec::SmallVec;
use tollgate::policy::Key;
use tollgate::{
    Decision, DetachedPending, FixedWindow, Limit, Limiter, Quota, Rule, Span, Store, Timestamp, Window,
};
use tollgate_envoy::{DescriptorMatch, Domains, Leaf, Metadata, PlacedLeaf};

use crate::native::saturate_u32;
use crate::request::{Descriptor, RateLimitRequest};
use crate::response::{Answer, CurrentLimit, Status};
use crate::response_headers::{self, Headers};
use crate::statistics::{HitState, Statistics};
use crate::unit::{self, Unit};
use tollgate_grpc::call::Refusal;

/// The remaining hits of a descriptor without a limit, as in envoyproxy/ratelimit.
const UNLIMITED: u32 = u32::MAX;
/// The rule name of overrides without a configured limit.
const OVERRIDE: &str = "override";

/// The limit that applies to one descriptor.
pub(crate) enum ResolvedDescriptor<'p> {
    /// No limit, or a limit that another one replaces.
    Nothing,
    /// A limit that is not counted.
    Unlimited(&'p Leaf),
    /// A limit of the files.
    Limit { leaf: PlacedLeaf<'p>, limit: &'p Limit },
    /// The quota of the request.
    Override { leaf: Option<PlacedLeaf<'p>>, rule: Box<Rule>, requests: u32, unit: Unit },
}

/// The outcome of one descriptor.
#[derive(Clone, Debug, Default)]
pub(crate) struct DescriptorOutcome {
    /// Whether the limit was exceeded, whatever its mode.
    exceeded: bool,
    /// Whether exceeding the limit refuses the request.
    binding: bool,
    limit: u64,
    remaining: u64,
    /// The time of the decision; `None` if nothing was counted.
    at: Option<Timestamp>,
    /// The time until refunded hits make no difference.
    back_for: Option<Span>,
    wait: Duration,
    /// Headers and a body, if there are any.
    words: Option<Box<Answer<'static>>>,
}

pub(crate) type ResolvedDescriptors<'p> = SmallVec<[ResolvedDescriptor<'p>; 2]>;
pub(crate) type DescriptorOutcomes = SmallVec<[DescriptorOutcome; 2]>;

/// Resolves the limits of all descriptors of a request.
pub(crate) fn resolve<'p, S>(
    limiter: &'p Limiter<S>,
    domains: &'p Domains,
    request: &RateLimitRequest<'_>,
) -> Result<ResolvedDescriptors<'p>, Refusal> {
    let mut met = ResolvedDescriptors::new();
    for descriptor in &request.descriptors {
        met.push(resolve_one(limiter, domains, request.domain, descriptor)?);
    }
    if met.iter().any(|it| it.leaf().is_some_and(|leaf| leaf.replaces().next().is_some())) {
        let is_replaced = |it: &ResolvedDescriptor<'p>| {
            let name = it.leaf().and_then(Leaf::name);
            name.is_some_and(|name| {
                met.iter().filter_map(ResolvedDescriptor::leaf).any(|leaf| leaf.replaces_name(name))
            })
        };
        let replaced: SmallVec<[bool; 2]> = met.iter().map(is_replaced).collect();
        for (it, _) in met.iter_mut().zip(replaced).filter(|(_, replaced)| *replaced) {
            *it = ResolvedDescriptor::Nothing;
        }
    }
    Ok(met)
}

fn resolve_one<'p, S>(
    limiter: &'p Limiter<S>,
    domains: &'p Domains,
    domain: &str,
    descriptor: &Descriptor<'_>,
) -> Result<ResolvedDescriptor<'p>, Refusal> {
    let found = domains.find(domain, &descriptor.entries);
    if let Some(instead) = descriptor.instead {
        let leaf = if let DescriptorMatch::Limited(leaf) = found { Some(leaf) } else { None };
        let (requests, unit) = (instead.requests, instead.unit()?);
        let counted = leaf.and_then(|leaf| leaf.limit(limiter.policy())).and_then(|it| it.rules().first());
        let rule = Box::new(rule(counted, requests, unit)?);
        return Ok(ResolvedDescriptor::Override { leaf, rule, requests, unit });
    }
    Ok(match found {
        DescriptorMatch::UnknownDomain | DescriptorMatch::NoLimit => ResolvedDescriptor::Nothing,
        DescriptorMatch::Unlimited(leaf) => ResolvedDescriptor::Unlimited(leaf.leaf()),
        DescriptorMatch::Limited(leaf) => match leaf.limit(limiter.policy()) {
            Some(limit) => ResolvedDescriptor::Limit { leaf, limit },
            None => ResolvedDescriptor::Nothing,
        },
    })
}

/// Creates the rule of an override, which uses the counters of a limit that is configured for the
/// same unit.
pub(crate) fn rule(counted: Option<&Rule>, requests: u32, unit: Unit) -> Result<Rule, Refusal> {
    let window = Window::Epoch(unit.length());
    let tally = FixedWindow::tally(u64::from(requests), window).map_err(|error| {
        Refusal::invalid_argument(format!("this limit override cannot be served: {error}"))
    })?;
    let quota = Quota::FixedWindow(tally);
    let is_same = |rule: &&Rule| rule.quota.identity() == quota.identity();
    Ok(match counted {
        Some(same) if is_same(&same) => Rule { quota, ..same.clone() },
        other => Rule::new(other.map_or(OVERRIDE, |rule| &rule.name), quota),
    })
}

impl<'p> ResolvedDescriptor<'p> {
    /// The limit of the files, unless the descriptor has an override.
    fn leaf(&self) -> Option<&'p Leaf> {
        match self {
            Self::Unlimited(leaf) => Some(leaf),
            Self::Limit { leaf, .. } => Some(leaf.leaf()),
            Self::Nothing | Self::Override { .. } => None,
        }
    }

    /// The limit of the policy and the key of a descriptor, unless the request is refused only together with
    /// other limits.
    pub(crate) fn charged_alone(&self, descriptor: &Descriptor<'_>) -> Option<(&'p Limit, Key)> {
        match self {
            Self::Limit { leaf, limit } if !leaf.quota_mode() => {
                Some((*limit, leaf.key(&descriptor.entries)))
            }
            _ => None,
        }
    }

    /// Whether the limit refuses a request only together with other limits.
    pub(crate) fn is_quota_mode(&self) -> bool {
        matches!(self, Self::Limit { leaf, .. } if leaf.quota_mode())
    }

    const fn is_counted(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Override { .. })
    }

    /// The key of the counter of a descriptor.
    fn key(&self, domain: &str, descriptor: &Descriptor<'_>) -> Key {
        match self {
            Self::Limit { leaf, .. } | Self::Override { leaf: Some(leaf), .. } => {
                leaf.key(&descriptor.entries)
            }
            _ => override_key(domain, descriptor),
        }
    }
}

/// The key of an override without a configured limit; it includes the domain.
pub(crate) fn override_key(domain: &str, descriptor: &Descriptor<'_>) -> Key {
    let domain = std::iter::once(("domain", domain));
    Key::of_entries(domain.chain(descriptor.entries.iter().copied()))
}

/// The hits of a descriptor.
pub(crate) fn hits(request: &RateLimitRequest<'_>, descriptor: &Descriptor<'_>) -> u64 {
    request.cost(descriptor).unwrap_or(1)
}

impl DescriptorOutcome {
    /// Converts the decision about one limit to an outcome.
    pub(crate) fn of<S: Store>(limiter: &Limiter<S>, decision: &Decision<'_>, headers: Headers) -> Self {
        let mut outcome = match decision.limits().next() {
            Some(counted) => Self {
                exceeded: !counted.outcome().is_admitted(),
                binding: counted.is_binding(),
                limit: counted.outcome().limit,
                remaining: counted.outcome().remaining,
                at: decision.wall_at(),
                ..Self::default()
            },
            // The limit is off, or it could not be counted.
            None => Self { exceeded: !decision.is_allowed(), binding: true, ..Self::default() },
        };
        outcome.wait = decision.advised_wait().unwrap_or(Duration::ZERO);
        if !decision.is_allowed() || headers == Headers::All {
            let mut words = Answer::default();
            response_headers::add(&mut words, limiter, decision, headers);
            outcome.words = Some(Box::new(words));
        }
        outcome
    }

    fn is_over(&self) -> bool {
        self.exceeded && self.binding
    }

    /// Makes the outcome of a look one of a single hit: without remaining hits, the limit is exceeded.
    pub(crate) fn exceed_if_spent(&mut self) {
        self.exceeded |= self.at.is_some() && self.remaining == 0;
    }
}

/// The decision about a descriptor that has to be awaited.
pub(crate) enum PendingDescriptor<S> {
    Decision(Box<DetachedPending<S>>),
    Refund,
}

/// Decides one descriptor without waiting, if possible.
pub(crate) fn try_decide<S: Store>(
    limiter: &Limiter<S>,
    request: &RateLimitRequest<'_>,
    met: &ResolvedDescriptor<'_>,
    descriptor: &Descriptor<'_>,
    headers: Headers,
) -> Result<DescriptorOutcome, PendingDescriptor<S>> {
    if met.is_counted() && descriptor.gives_back {
        return Err(PendingDescriptor::Refund);
    }
    let (key, hits) = (|| met.key(request.domain, descriptor), hits(request, descriptor));
    let tell = |decision: &Decision<'_>| DescriptorOutcome::of(limiter, decision, headers);
    let tried = match met {
        ResolvedDescriptor::Limit { limit, .. } => {
            limiter.try_decide_named(limit, key(), None, Some(hits), tell)
        }
        ResolvedDescriptor::Override { rule, .. } => limiter.try_decide_rule(rule, key(), hits, tell),
        ResolvedDescriptor::Nothing | ResolvedDescriptor::Unlimited(_) => {
            return Ok(DescriptorOutcome::default());
        }
    };
    tried.map_err(|pending| PendingDescriptor::Decision(Box::new(pending.detach())))
}

impl<S: Store> PendingDescriptor<S> {
    /// Waits for the store.
    pub(crate) async fn finish(
        self,
        limiter: &Limiter<S>,
        request: &RateLimitRequest<'_>,
        met: &ResolvedDescriptor<'_>,
        descriptor: &Descriptor<'_>,
        headers: Headers,
    ) -> DescriptorOutcome {
        let refunded = match (self, met) {
            (Self::Decision(pending), _) => {
                let outcome = |decision: &Decision<'_>| DescriptorOutcome::of(limiter, decision, headers);
                return pending.finish(None, outcome).await;
            }
            (Self::Refund, ResolvedDescriptor::Limit { limit, .. }) => {
                limit.rules().first().map(|rule| (limit.name(), rule))
            }
            (Self::Refund, ResolvedDescriptor::Override { rule, .. }) => {
                Some((limiter.policy().ad_hoc().name(), &**rule))
            }
            (Self::Refund, _) => None,
        };
        let Some((limit, rule)) = refunded else { return DescriptorOutcome::default() };
        refund(limiter, limit, rule, &met.key(request.domain, descriptor), hits(request, descriptor)).await
    }
}

/// Refunds hits and returns the state of the key. If the store does not answer, the refund is
/// deferred.
pub(crate) async fn refund<S: Store>(
    limiter: &Limiter<S>,
    limit: &str,
    rule: &Rule,
    key: &Key,
    units: u64,
) -> DescriptorOutcome {
    let granted = limiter.grant(limit, rule, key, units).await;
    granted.ok().flatten().map_or_else(DescriptorOutcome::default, |it| DescriptorOutcome {
        remaining: it.remaining,
        back_for: Some(it.reset_after),
        ..DescriptorOutcome::default()
    })
}

/// Counts the outcomes for the statistics, except for refunds and hits that could not be counted.
pub(crate) fn count<S>(
    statistics: &Statistics<S>,
    limiter: &Limiter<S>,
    request: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'_>,
    outcomes: &DescriptorOutcomes,
) {
    for ((met, descriptor), outcome) in met.iter().zip(&request.descriptors).zip(outcomes) {
        let (ResolvedDescriptor::Limit { leaf, .. } | ResolvedDescriptor::Override { leaf: Some(leaf), .. }) =
            met
        else {
            continue;
        };
        if outcome.at.is_some() {
            let remaining = (!outcome.exceeded).then_some(outcome.remaining);
            let (hits, limit, binding) = (hits(request, descriptor), outcome.limit, outcome.binding);
            let stood = HitState { hits, limit, remaining, binding };
            statistics.count(limiter, *leaf, &descriptor.entries, stood);
        }
    }
}

/// Combines the outcomes into the response.
pub(crate) fn answer<'p>(
    request: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'p>,
    outcomes: &mut DescriptorOutcomes,
) -> Answer<'p> {
    let mut answer = Answer::default();
    let mut quotas = (0, 0);
    for (met, outcome) in met.iter().zip(outcomes.iter()) {
        answer.statuses.push(status(met, outcome));
        if matches!(met, ResolvedDescriptor::Limit { leaf, .. } if leaf.quota_mode()) {
            quotas = (quotas.0 + 1, quotas.1 + u32::from(outcome.is_over()));
        } else {
            answer.over |= outcome.is_over();
        }
    }
    answer.over |= quotas.0 > 0 && quotas.0 == quotas.1;
    answer.metadata = metadata(request, met, outcomes);
    add_words(&mut answer, outcomes);
    answer
}

pub(crate) fn status<'p>(met: &ResolvedDescriptor<'p>, outcome: &DescriptorOutcome) -> Status<'p> {
    let passed_uncounted = !outcome.exceeded && outcome.at.is_none() && outcome.back_for.is_none();
    let (requests, unit, name) = match met {
        ResolvedDescriptor::Nothing => return Status::default(),
        ResolvedDescriptor::Unlimited(_) => return Status { remaining: UNLIMITED, ..Status::default() },
        // The limit is off, or it could not be counted: its state is unknown.
        _ if passed_uncounted => return Status::default(),
        ResolvedDescriptor::Limit { leaf, .. } => {
            let Some(unit) = leaf.unit() else { return Status::default() };
            (leaf.requests_per_unit().unwrap_or(0), unit, leaf.leaf().name().unwrap_or_default())
        }
        ResolvedDescriptor::Override { requests, unit, .. } => (*requests, *unit, ""),
    };
    let unit_secs = unit.length().as_secs_ceil();
    Status {
        over: outcome.is_over(),
        limit: Some(CurrentLimit { requests, unit: Some(unit), name }),
        remaining: if outcome.exceeded { 0 } else { saturate_u32(outcome.remaining) },
        reset: match outcome.at {
            Some(at) => Some(unit_secs - at.as_micros() / 1_000_000 % unit_secs),
            None => outcome.back_for.map(Span::as_secs_ceil),
        },
        quota: None,
    }
}

/// Adds headers and body of the refusal with the longest wait, else of the limit with the least
/// left.
fn add_words(answer: &mut Answer<'_>, outcomes: &mut DescriptorOutcomes) {
    let over = answer.over;
    let candidates = outcomes.iter_mut().filter(|it| it.words.is_some() && it.is_over() == over);
    let chosen = candidates
        .max_by_key(|it| if over { (it.wait, 0) } else { (Duration::ZERO, u64::MAX - it.remaining) });
    if let Some(outcome) = chosen {
        say(answer, std::mem::take(outcome));
    }
}

/// Adds headers and body of one descriptor, if it has any.
pub(crate) fn say(answer: &mut Answer<'_>, outcome: DescriptorOutcome) {
    if let Some(words) = outcome.words {
        answer.response_headers = words.response_headers;
        answer.request_headers = words.request_headers;
        answer.raw_body = words.raw_body;
    }
}

/// The request and the metadata of the limits that had room; `None` if there is no metadata.
fn metadata(
    request: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'_>,
    outcomes: &DescriptorOutcomes,
) -> Option<Map<String, Value>> {
    let mut merged = Map::new();
    for (met, outcome) in met.iter().zip(outcomes.iter()) {
        let passed = !outcome.is_over();
        if let Some(Metadata::Map(entries)) = met.leaf().filter(|_| passed).and_then(Leaf::metadata) {
            merged.extend(entries.iter().map(|(name, value)| (name.to_string(), json_of(value))));
        }
    }
    if merged.is_empty() {
        return None;
    }
    let descriptors = request.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter().map(|(key, value)| Value::from(format!("{key}={value}")));
        let mut shown = Map::from_iter([("entries".to_owned(), entries.collect())]);
        if let Some(instead) = descriptor.instead {
            let unit = unit::of_override(instead.unit).map_or("UNKNOWN", unit::json_name);
            let limit = serde_json::json!({"requestsPerUnit": instead.requests, "unit": unit});
            shown.insert("limit".to_owned(), limit);
        }
        if let Some(hits) = descriptor.hits {
            shown.insert("hitsAddend".to_owned(), hits.into());
        }
        Value::Object(shown)
    });
    let mut all = Map::from_iter([
        ("domain".to_owned(), request.domain.into()),
        ("descriptors".to_owned(), descriptors.collect()),
        ("metadata".to_owned(), Value::Object(merged)),
    ]);
    if request.hits > 0 {
        all.insert("hitsAddend".to_owned(), request.hits.into());
    }
    Some(all)
}

fn json_of(metadata: &Metadata) -> Value {
    match metadata {
        Metadata::Null => Value::Null,
        Metadata::Bool(flag) => Value::Bool(*flag),
        Metadata::Number(number) => Value::from(*number),
        Metadata::Text(text) => Value::String(text.to_string()),
        Metadata::List(values) => values.iter().map(json_of).collect(),
        Metadata::Map(entries) => {
            Value::Object(entries.iter().map(|(name, value)| (name.to_string(), json_of(value))).collect())
        }
    }
}
