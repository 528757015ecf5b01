//! `GET /v1/decisions/{id}` explains a past decision, `POST /v1/explain` a hypothetical one.
//!
//! Both are rendered from the same record type, so their wording is the same. A hypothetical decision
//! charges nothing and is not observed.

use http::request::Parts;
use serde::Serialize;
use tollgate::{DecisionId, Input as _, Limiter, Store};
use tollgate_telemetry::{LimitRecord, Record, Spender, Watcher};

use crate::access::Role;
use crate::api::Inner;
use crate::body::{quoted, read};
use crate::check::{CheckRequest, FIELDS};
use crate::decision_view::{HIDDEN_KEY, hides_named, mode, tags_named};
use crate::decisions::millis;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::{date, tag};

#[derive(Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "so many things are told of")]
struct ExplanationView<'r> {
    id: Option<String>,
    hypothetical: bool,
    at: Option<String>,
    allowed: bool,
    fate: &'static str,
    summary: String,
    reason: Option<&'r str>,
    limit: Option<&'r str>,
    retry_after_ms: Option<u64>,
    policy_version: u64,
    policy_is_current: bool,
    degraded: bool,
    took_us: u64,
    request: RequestView<'r>,
    limits: Vec<LimitExplanation<'r>>,
    trace_id: Option<String>,
}

#[derive(Serialize)]
struct RequestView<'r> {
    method: &'r str,
    path: &'r str,
    host: Option<&'r str>,
    client: Option<&'r str>,
}

#[derive(Serialize)]
struct LimitExplanation<'r> {
    name: &'r str,
    window: Option<&'r str>,
    key: &'r str,
    /// Null if even the hash of the key is hidden.
    tag: Option<String>,
    algorithm: &'static str,
    quota: String,
    /// The plan or override that set the quota; null for the limit's own.
    granted_by: Option<&'r str>,
    mode: &'static str,
    candidate: bool,
    decided: bool,
    allowed: bool,
    cost: u64,
    limit: u64,
    remaining: u64,
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
    arithmetic: Vec<String>,
    spenders: Vec<SpenderView>,
}

#[derive(Serialize)]
struct SpenderView {
    client: Option<String>,
    method: String,
    path: String,
    units: u64,
    last_at: Option<String>,
}

/// The context that a view needs besides the record.
struct ExplanationContext<'a, S> {
    limiter: &'a Limiter<S>,
    watcher: &'a Watcher,
    hypothetical: bool,
    /// Whether keys and addresses are hidden, even as hashes.
    is_hidden: bool,
    /// Whether keys are shown with their tags.
    is_tagged: bool,
}

impl<S> ExplanationContext<'_, S> {
    fn explanation(&self, record: &Record) -> Reply {
        let limits = record.limits.iter().enumerate();
        json_of(&ExplanationView {
            id: (!self.hypothetical).then(|| record.id.to_string()),
            hypothetical: self.hypothetical,
            at: date(record.at),
            allowed: record.allowed,
            fate: record.fate.as_str(),
            summary: record.summary(),
            reason: record.reason.as_deref(),
            limit: record.limit.as_deref(),
            retry_after_ms: record.retry_after.map(millis),
            policy_version: record.policy_version,
            policy_is_current: record.policy_version == self.limiter.version(),
            degraded: record.degraded,
            took_us: record.took.as_micros(),
            request: RequestView {
                method: &record.method,
                path: &record.path,
                host: record.host.as_deref(),
                client: record.client.as_deref().map(|client| self.shown(client)),
            },
            limits: limits
                .map(|(at, limit)| self.limit(record, limit, record.limiting == Some(at)))
                .collect(),
            trace_id: record.trace.map(|trace| format!("{:032x}", trace.trace)),
        })
    }

    fn limit<'r>(&self, record: &Record, limit: &'r LimitRecord, decided: bool) -> LimitExplanation<'r> {
        let outcome = &limit.outcome;
        let spenders = self.watcher.spenders(self.limiter.policy(), limit);
        LimitExplanation {
            name: &limit.name,
            window: limit.window.as_deref(),
            key: self.shown(&limit.key),
            tag: self.is_tagged.then(|| tag(limit.tag)),
            algorithm: limit.quota.algorithm(),
            quota: limit.promise(),
            granted_by: limit.granted_by.as_deref(),
            mode: mode(limit.mode),
            candidate: limit.is_candidate,
            decided,
            allowed: outcome.is_admitted(),
            cost: limit.cost,
            limit: outcome.limit,
            remaining: outcome.remaining,
            retry_after_ms: outcome.retry_after().map(millis),
            reset_after_ms: outcome.reset_after.as_millis_ceil(),
            arithmetic: limit.arithmetic(record.counted_at),
            spenders: spenders.into_iter().map(|spender| self.spender(spender)).collect(),
        }
    }

    fn spender(&self, spender: Spender) -> SpenderView {
        SpenderView {
            client: spender.client.map(|client| self.shown(&client).to_owned()),
            method: spender.method.into(),
            path: spender.path.into(),
            units: spender.units,
            last_at: date(spender.last),
        }
    }

    /// Returns a key or an address, or a placeholder if it is hidden.
    const fn shown<'s>(&self, text: &'s str) -> &'s str {
        if self.is_hidden { HIDDEN_KEY } else { text }
    }
}

impl<S: Store> Inner<S> {
    /// Explains a past decision.
    pub(crate) fn explain(&self, asked: &Parts, id: &str) -> Result<Reply, Problem> {
        Query::none(asked.uri.query())?;
        let watcher = self.watching()?;
        let id: DecisionId = id.parse().map_err(|_| {
            let shown = quoted(id);
            Problem::senseless(format!(
                "`{shown}` is not the id of a decision, which has sixteen hexadecimal digits"
            ))
        })?;
        let record = watcher.record(id).ok_or_else(|| forgotten(id, watcher))?;
        let limiter = self.limiter.load();
        let (hypothetical, is_hidden, is_tagged) = (false, false, true);
        Ok(ExplanationContext { limiter: &limiter, watcher, hypothetical, is_hidden, is_tagged }
            .explanation(&record))
    }

    /// Explains the decision that a request would get now.
    pub(crate) async fn consider(&self, body: &[u8], role: Role) -> Result<Reply, Problem> {
        let watcher = self.watching()?;
        let asked: CheckRequest<'_> = read(body, FIELDS)?;
        let call = asked.call()?;
        let (limiter, begun) = (self.limiter.load(), self.now());
        let decision = limiter.consider(&call).await.map_err(|error| Problem::outage(&error))?;
        let now = self.now();
        let record =
            watcher.describe(limiter.policy(), limiter.version(), Some(call.subject()), &decision, now);
        let record = Record { took: now.since(begun), ..record };
        let policy = limiter.policy();
        let (is_hidden, is_tagged) = (hides_named(policy, role), tags_named(policy, role));
        Ok(ExplanationContext { limiter: &limiter, watcher, hypothetical: true, is_hidden, is_tagged }
            .explanation(&record))
    }

    /// Returns the watcher, if the limiter is observed.
    pub(crate) fn watching(&self) -> Result<&Watcher, Problem> {
        self.watcher.get().ok_or_else(|| {
            Problem::conflict("observation is off: the policy file has `observe: off`; remove it and restart")
        })
    }
}

fn forgotten(id: DecisionId, watcher: &Watcher) -> Problem {
    let kept = watcher.kept();
    let since = match kept.since.and_then(date) {
        Some(since) => format!("{} refusals are, with all of them since {since}", kept.refusals),
        None => "no refusal is remembered yet".to_owned(),
    };
    Problem::not_found(format!(
        "no decision `{id}` is remembered: {since} (`observe.records` is {}: so many, and a quarter as many \
         first refusals of keys); of requests that were admitted only a sample is",
        kept.records
    ))
}
