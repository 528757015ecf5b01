//! Domains of envoyproxy/ratelimit's files, decided as it decides them.
//!
//! - Each descriptor on its own: all are counted, also where one is over its limit, and
//!   what is refused is counted too.
//! - What a descriptor is told is how its counter stood after it: over the limit iff the
//!   count is above `requests_per_unit`, and then nothing remains.
//! - A limit in shadow mode says OK, and that nothing remains. One in quota mode refuses the
//!   request only together with all others of its kind.
//! - A limit whose name another one of the same request `replaces` is neither asked nor counted.
//! - An override counts by its own numbers, in the counter of the descriptor; a unit that is
//!   none is turned down, before anything is counted.
//! - Hits that are given back, which envoyproxy/ratelimit does not know, lower the count.
//!
//! Not here: finding the limit of a descriptor (`tollgate_envoy`).

use serde_json::{Map, Value};
use smallvec::SmallVec;
use tollgate::policy::Key;
use tollgate::{
    Adjustment, Decision, FixedWindow, Limit, Limiter, Quota, Rule, Span, Store, Timestamp, Window,
};
use tollgate_envoy::{DescriptorMatch, Domains, Leaf, Metadata};

use crate::grpc::Refusal;
use crate::native::most;
use crate::request::{Descriptor, RateLimitRequest};
use crate::response::{Answer, CurrentLimit, Status};
use crate::response_headers::{self, Headers};
use crate::statistics::{HitState, Statistics};
use crate::unit::Unit;

/// What a descriptor without limit has left, as envoyproxy/ratelimit puts it.
const UNLIMITED: u32 = u32::MAX;
/// Names the rules of overrides where no limit is configured.
const OVERRIDE: &str = "override";

/// What one descriptor meets.
pub(crate) enum ResolvedDescriptor<'p> {
    /// No limit, or one that another replaces.
    Nothing,
    /// One that is not counted.
    Unlimited(&'p Leaf),
    /// A limit of the files.
    Limit { leaf: &'p Leaf, limit: &'p Limit },
    /// The numbers that came with it.
    Override { leaf: Option<&'p Leaf>, rule: Box<Rule>, requests: u32, unit: Unit },
}

/// What was told about one descriptor.
#[derive(Clone, Debug, Default)]
pub(crate) struct DescriptorOutcome {
    /// Whether the limit was exceeded, whatever follows from it.
    exceeded: bool,
    /// Whether that refuses anybody.
    binding: bool,
    limit: u64,
    remaining: u64,
    /// When; `None` where nothing was counted.
    at: Option<Timestamp>,
    /// How long it takes until hits that were given back make no difference.
    back_for: Option<Span>,
    wait: Span,
    /// Headers and a body, where there is something to say.
    words: Option<Box<Answer<'static>>>,
}

pub(crate) type ResolvedDescriptors<'p> = SmallVec<[ResolvedDescriptor<'p>; 2]>;
/// `None`: not decided yet.
pub(crate) type DescriptorOutcomes = SmallVec<[Option<DescriptorOutcome>; 2]>;

/// What all descriptors of a request meet.
pub(crate) fn resolve<'p, S>(
    limiter: &'p Limiter<S>,
    domains: &'p Domains,
    asked: &RateLimitRequest<'_>,
) -> Result<ResolvedDescriptors<'p>, Refusal> {
    let mut met = ResolvedDescriptors::new();
    for descriptor in &asked.descriptors {
        met.push(resolve_one(limiter, domains, asked.domain, descriptor)?);
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
        DescriptorMatch::Unlimited(leaf) => ResolvedDescriptor::Unlimited(leaf),
        DescriptorMatch::Limited(leaf) => match leaf.limit(limiter.policy()) {
            Some(limit) => ResolvedDescriptor::Limit { leaf, limit },
            None => ResolvedDescriptor::Nothing,
        },
    })
}

/// Counts so many a unit, in the counters of a limit that is configured for that unit.
pub(crate) fn rule(counted: Option<&Rule>, requests: u32, unit: Unit) -> Result<Rule, Refusal> {
    let window = Window::Epoch(Span::from_secs(unit.secs()));
    let tally = FixedWindow::tally(u64::from(requests), window)
        .map_err(|error| Refusal::senseless(format!("this limit override cannot be served: {error}")))?;
    let quota = Quota::FixedWindow(tally);
    let is_same = |rule: &&Rule| rule.quota.identity() == quota.identity();
    Ok(match counted {
        Some(same) if is_same(&same) => Rule { quota, ..same.clone() },
        other => Rule::new(other.map_or(OVERRIDE, |rule| &rule.name), quota),
    })
}

impl<'p> ResolvedDescriptor<'p> {
    /// The limit of the files, unless the descriptor brings its own numbers.
    fn leaf(&self) -> Option<&'p Leaf> {
        match self {
            Self::Unlimited(leaf) | Self::Limit { leaf, .. } => Some(leaf),
            Self::Nothing | Self::Override { .. } => None,
        }
    }

    const fn is_counted(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Override { .. })
    }

    /// Whose counter a descriptor spends.
    fn key(&self, domain: &str, descriptor: &Descriptor<'_>) -> Key {
        match self {
            Self::Limit { leaf, .. } | Self::Override { leaf: Some(leaf), .. } => {
                leaf.key(&descriptor.entries)
            }
            _ => override_key(domain, descriptor),
        }
    }
}

/// Where nothing is configured, the domain tells counters apart.
pub(crate) fn override_key(domain: &str, descriptor: &Descriptor<'_>) -> Key {
    let domain = std::iter::once(("domain", domain));
    Key::of_entries(domain.chain(descriptor.entries.iter().copied()))
}

/// What a descriptor counts.
pub(crate) fn hits(asked: &RateLimitRequest<'_>, descriptor: &Descriptor<'_>) -> u64 {
    asked.cost(descriptor).unwrap_or(1)
}

impl DescriptorOutcome {
    /// What a decision about one limit tells.
    pub(crate) fn of<S: Store>(limiter: &Limiter<S>, decision: &Decision<'_>, headers: Headers) -> Self {
        let mut told = match decision.limits().next() {
            Some(counted) => Self {
                exceeded: !counted.outcome().is_admitted(),
                binding: counted.is_binding(),
                limit: counted.outcome().limit,
                remaining: counted.outcome().remaining,
                at: decision.wall_at(),
                ..Self::default()
            },
            // Switched off, or nobody could count.
            None => Self { exceeded: !decision.is_allowed(), binding: true, ..Self::default() },
        };
        told.wait = decision.advised_wait().unwrap_or(Span::ZERO);
        if !decision.is_allowed() || headers == Headers::All {
            let mut words = Answer::default();
            response_headers::add(&mut words, limiter, decision, headers);
            told.words = Some(Box::new(words));
        }
        told
    }

    fn is_over(&self) -> bool {
        self.exceeded && self.binding
    }
}

/// Decides what can be decided without waiting.
pub(crate) fn try_decide<S: Store>(
    limiter: &Limiter<S>,
    asked: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'_>,
    headers: Headers,
) -> DescriptorOutcomes {
    let each = met.iter().zip(&asked.descriptors).map(|(met, descriptor)| {
        if !met.is_counted() {
            return Some(DescriptorOutcome::default());
        }
        if descriptor.gives_back {
            return None;
        }
        let (key, hits) = (met.key(asked.domain, descriptor), hits(asked, descriptor));
        let tell = |decision: &Decision<'_>| DescriptorOutcome::of(limiter, decision, headers);
        match met {
            ResolvedDescriptor::Limit { limit, .. } => {
                limiter.try_decide_named(limit, key, None, Some(hits), tell)
            }
            ResolvedDescriptor::Override { rule, .. } => limiter.try_decide_rule(rule, key, hits, tell),
            ResolvedDescriptor::Nothing | ResolvedDescriptor::Unlimited(_) => None,
        }
    });
    each.collect()
}

/// Decides one that has to be waited for.
pub(crate) async fn decide<S: Store>(
    limiter: &Limiter<S>,
    asked: &RateLimitRequest<'_>,
    met: &ResolvedDescriptor<'_>,
    descriptor: &Descriptor<'_>,
    headers: Headers,
) -> DescriptorOutcome {
    let (key, hits) = (met.key(asked.domain, descriptor), hits(asked, descriptor));
    let decision = match met {
        ResolvedDescriptor::Limit { limit, .. } if descriptor.gives_back => {
            let Some(rule) = limit.rules().first() else { return DescriptorOutcome::default() };
            return give_back(limiter, rule, &key, hits).await;
        }
        ResolvedDescriptor::Override { rule, .. } if descriptor.gives_back => {
            return give_back(limiter, rule, &key, hits).await;
        }
        ResolvedDescriptor::Limit { limit, .. } => limiter.decide_named(limit, key, None, Some(hits)).await,
        ResolvedDescriptor::Override { rule, .. } => limiter.decide_rule(rule, key, hits).await,
        ResolvedDescriptor::Nothing | ResolvedDescriptor::Unlimited(_) => {
            return DescriptorOutcome::default();
        }
    };
    DescriptorOutcome::of(limiter, &decision, headers)
}

/// Gives hits back, and tells how the key stands then. That the store gave no answer is no
/// reason to refuse.
pub(crate) async fn give_back<S: Store>(
    limiter: &Limiter<S>,
    rule: &Rule,
    key: &Key,
    units: u64,
) -> DescriptorOutcome {
    let adjusted = limiter.store().adjust(rule, key.as_bytes(), Adjustment::Grant { units }).await;
    adjusted.map_or_else(
        |_gone| DescriptorOutcome::default(),
        |it| DescriptorOutcome {
            remaining: it.remaining,
            back_for: Some(it.reset_after),
            ..DescriptorOutcome::default()
        },
    )
}

/// Counts what was told of limits of the files, when all is told: hits that were given back, or
/// that nobody could count, are not.
pub(crate) fn count<S>(
    statistics: &Statistics<S>,
    limiter: &Limiter<S>,
    asked: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'_>,
    told: &DescriptorOutcomes,
) {
    for ((met, descriptor), told) in met.iter().zip(&asked.descriptors).zip(told) {
        let (ResolvedDescriptor::Limit { leaf, .. } | ResolvedDescriptor::Override { leaf: Some(leaf), .. }) =
            met
        else {
            continue;
        };
        if let Some(told) = told.as_ref().filter(|told| told.at.is_some()) {
            let remaining = (!told.exceeded).then_some(told.remaining);
            let (hits, limit, binding) = (hits(asked, descriptor), told.limit, told.binding);
            let stood = HitState { hits, limit, remaining, binding };
            statistics.count(limiter, leaf, &descriptor.entries, stood);
        }
    }
}

/// What all of it comes to.
pub(crate) fn answer<'p>(
    asked: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'p>,
    told: &mut DescriptorOutcomes,
) -> Answer<'p> {
    let mut answer = Answer::default();
    let mut quotas = (0, 0);
    for (met, told) in met.iter().zip(told.iter()) {
        let Some(told) = told else { continue };
        answer.statuses.push(status(met, told));
        if matches!(met, ResolvedDescriptor::Limit { leaf, .. } if leaf.quota_mode()) {
            quotas = (quotas.0 + 1, quotas.1 + u32::from(told.is_over()));
        } else {
            answer.over |= told.is_over();
        }
    }
    answer.over |= quotas.0 > 0 && quotas.0 == quotas.1;
    answer.metadata = metadata(asked, met, told);
    add_words(&mut answer, told);
    answer
}

pub(crate) fn status<'p>(met: &ResolvedDescriptor<'p>, told: &DescriptorOutcome) -> Status<'p> {
    let passed_uncounted = !told.exceeded && told.at.is_none() && told.back_for.is_none();
    let (requests, unit, name) = match met {
        ResolvedDescriptor::Nothing => return Status::default(),
        ResolvedDescriptor::Unlimited(_) => return Status { remaining: UNLIMITED, ..Status::default() },
        // Switched off, or nobody could count: how the limit stands nobody knows.
        _ if passed_uncounted => return Status::default(),
        ResolvedDescriptor::Limit { leaf, .. } => {
            let unit = leaf.unit().and_then(|unit| Unit::of_span(unit.length()));
            let Some(unit) = unit else { return Status::default() };
            (leaf.requests_per_unit().unwrap_or(0), unit, leaf.name().unwrap_or_default())
        }
        ResolvedDescriptor::Override { requests, unit, .. } => (*requests, *unit, ""),
    };
    Status {
        over: told.is_over(),
        limit: Some(CurrentLimit { requests, unit: Some(unit), name }),
        remaining: if told.exceeded { 0 } else { most(told.remaining) },
        reset: match told.at {
            Some(at) => Some(unit.secs() - at.as_micros() / 1_000_000 % unit.secs()),
            None => told.back_for.map(Span::as_secs_ceil),
        },
        quota: None,
    }
}

/// The words of the refusal that takes longest, or else of the limit with the least left.
fn add_words(answer: &mut Answer<'_>, told: &mut DescriptorOutcomes) {
    let over = answer.over;
    let spoken = told.iter_mut().flatten().filter(|it| it.words.is_some() && it.is_over() == over);
    let chosen =
        spoken.max_by_key(|it| if over { (it.wait, 0) } else { (Span::ZERO, u64::MAX - it.remaining) });
    if let Some(told) = chosen {
        say(answer, std::mem::take(told));
    }
}

/// Answers in the words of one descriptor, if it has any.
pub(crate) fn say(answer: &mut Answer<'_>, told: DescriptorOutcome) {
    if let Some(words) = told.words {
        answer.response_headers = words.response_headers;
        answer.request_headers = words.request_headers;
        answer.raw_body = words.raw_body;
    }
}

/// What was asked, and the metadata of the limits that had room; `None` where there is none.
fn metadata(
    asked: &RateLimitRequest<'_>,
    met: &ResolvedDescriptors<'_>,
    told: &DescriptorOutcomes,
) -> Option<Map<String, Value>> {
    let mut merged = Map::new();
    for (met, told) in met.iter().zip(told.iter()) {
        let passed = told.as_ref().is_some_and(|told| !told.is_over());
        if let Some(Metadata::Map(entries)) = met.leaf().filter(|_| passed).and_then(Leaf::metadata) {
            merged.extend(entries.iter().map(|(name, value)| (name.to_string(), json_of(value))));
        }
    }
    if merged.is_empty() {
        return None;
    }
    let descriptors = asked.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter().map(|(key, value)| Value::from(format!("{key}={value}")));
        let mut shown = Map::from_iter([("entries".to_owned(), entries.collect())]);
        if let Some(instead) = descriptor.instead {
            let unit = Unit::of_override(instead.unit).map_or("UNKNOWN", Unit::name);
            let limit = serde_json::json!({"requestsPerUnit": instead.requests, "unit": unit});
            shown.insert("limit".to_owned(), limit);
        }
        if let Some(hits) = descriptor.hits {
            shown.insert("hitsAddend".to_owned(), hits.into());
        }
        Value::Object(shown)
    });
    let mut all = Map::from_iter([
        ("domain".to_owned(), asked.domain.into()),
        ("descriptors".to_owned(), descriptors.collect()),
        ("metadata".to_owned(), Value::Object(merged)),
    ]);
    if asked.hits > 0 {
        all.insert("hitsAddend".to_owned(), asked.hits.into());
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
