//! `GET /v1/decisions/{id}` explains a past decision, `POST /v1/explain` a hypothetical one.
//!
//! Both are rendered from the same record type, so their wording is the same. A hypothetical decision
//! charges nothing and is not observed.

use std::borrow::Cow;

use http::request::Parts;
use tollgate::{DecisionId, Input as _, Limit, Limiter, Store};
use tollgate_api::{ExplainedLimit, ExplainedRequest, Explanation, Spender};
use tollgate_records::RecordLog;
use tollgate_telemetry::{self as telemetry, LimitRecord, Record, Watcher};

use crate::access::Role;
use crate::api::Inner;
use crate::body::{quoted, read};
use crate::check::{CheckRequest, FIELDS, call};
use crate::decision_view::{HIDDEN_KEY, hides_named, mode, tags_named};
use crate::decisions::millis;
use crate::limits::far_regions;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::shed_view;
use crate::status::{date, tag};

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
    fn explanation<'r>(&self, record: &'r Record) -> Explanation<Cow<'r, str>> {
        let limits = record.limits.iter().enumerate();
        Explanation {
            id: (!self.hypothetical).then(|| record.id.to_string().into()),
            hypothetical: self.hypothetical,
            at: date(record.at).into(),
            allowed: record.allowed,
            fate: record.fate.as_str().into(),
            summary: record.summary().into(),
            reason: record.reason.as_deref().map(Cow::Borrowed),
            priority: record.priority.as_deref().map(Cow::Borrowed),
            limit: record.limit.as_deref().map(Cow::Borrowed),
            retry_after_ms: record.retry_after.map(millis),
            wait_ms: record.wait().map(millis),
            policy_version: record.policy_version,
            policy_is_current: record.policy_version == self.limiter.version(),
            degraded: record.degraded,
            took_us: record.took.as_micros(),
            request: ExplainedRequest {
                method: (&*record.method).into(),
                path: (&*record.path).into(),
                host: record.host.as_deref().map(Cow::Borrowed),
                client: record.client.as_deref().map(|client| self.shown(client).into()),
            },
            limits: limits
                .map(|(at, limit)| self.limit(record, limit, record.limiting == Some(at)))
                .collect(),
            shed: record.node_shed.as_deref().map(shed_view::explained),
            node: None,
            trace_id: record.trace.map(|trace| format!("{:032x}", trace.trace).into()),
        }
    }

    fn limit<'r>(
        &self,
        record: &Record,
        limit: &'r LimitRecord,
        decided: bool,
    ) -> ExplainedLimit<Cow<'r, str>> {
        let outcome = &limit.outcome;
        let spenders = self.watcher.spenders(self.limiter.policy(), limit);
        let mut arithmetic: Vec<_> =
            limit.arithmetic(record.counted_at).into_iter().map(Cow::Owned).collect();
        arithmetic.extend(self.limiter.policy().limit(&limit.name).and_then(region_sentence).map(Cow::Owned));
        ExplainedLimit {
            name: (&*limit.name).into(),
            window: limit.window.as_deref().map(Cow::Borrowed),
            key: self.shown(&limit.key).into(),
            tag: self.is_tagged.then(|| tag(limit.tag).into()),
            algorithm: limit.quota.algorithm().into(),
            quota: limit.promise().into(),
            granted_by: limit.granted_by.as_deref().map(Cow::Borrowed),
            mode: mode(limit.mode).into(),
            candidate: limit.is_candidate,
            decided,
            allowed: outcome.is_admitted(),
            cost: limit.cost,
            limit: outcome.limit,
            remaining: outcome.remaining,
            retry_after_ms: outcome.retry_after().map(millis),
            reset_after_ms: outcome.reset_after.as_millis_ceil(),
            leased: outcome.is_leased(),
            arithmetic,
            spenders: spenders.into_iter().map(|spender| self.spender(spender)).collect(),
        }
    }

    fn spender<'r>(&self, spender: telemetry::Spender) -> Spender<Cow<'r, str>> {
        Spender {
            client: spender.client.map(|client| self.shown(&client).to_owned().into()),
            method: String::from(spender.method).into(),
            path: String::from(spender.path).into(),
            units: spender.units,
            last_at: date(spender.last).into(),
        }
    }

    /// Returns a key or an address, or a placeholder if it is hidden.
    const fn shown<'s>(&self, text: &'s str) -> &'s str {
        if self.is_hidden { HIDDEN_KEY } else { text }
    }
}

/// Says which share of a limit this node counts, if regions share the limit.
fn region_sentence(limit: &Limit) -> Option<String> {
    let share = limit.region_share()?;
    let others: Vec<_> = far_regions(limit).collect();
    let rest = if others.is_empty() {
        "the other regions have the rest".to_owned()
    } else {
        format!("units of {} are borrowed in the background when a key runs short", others.join(", "))
    };
    Some(format!("these are {}% of the limit, the share of region {}; {rest}", share.percent, share.region))
}

impl<S: Store> Inner<S> {
    /// Explains a past decision, also if another node made it.
    pub(crate) async fn explain(&self, parts: &Parts, id: &str) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        let watcher = self.watching()?;
        let id: DecisionId = id.parse().map_err(|_| {
            let shown = quoted(id);
            Problem::senseless(format!(
                "`{shown}` is not the id of a decision, which has sixteen hexadecimal digits"
            ))
        })?;
        let limiter = self.limiter.load();
        if let Some(record) = watcher.record(id) {
            return Ok(json_of(&Self::explained(&limiter, watcher, &record)));
        }
        if let Some(record) = self.find_on_disk(id).await? {
            return Ok(json_of(&self.explained_from_disk(&limiter, watcher, &record)));
        }
        match self.ask_other_nodes(&limiter, id).await {
            Some(explanation) => Ok(json_of(&explanation)),
            None => Err(forgotten(id, watcher, self.records.get(), limiter.nodes())),
        }
    }

    /// Returns the record of a decision that has left memory.
    pub(crate) async fn find_on_disk(&self, id: DecisionId) -> Result<Option<Record>, Problem> {
        match self.records.get().cloned() {
            Some(records) => self.offload.run(move || records.find(id)).await,
            None => Ok(None),
        }
    }

    /// Returns the explanation of a decision of this node or of a process before it, whose versions of
    /// the policy have other numbers.
    pub(crate) fn explained_from_disk<'r>(
        &self,
        limiter: &Limiter<S>,
        watcher: &Watcher,
        record: &'r Record,
    ) -> Explanation<Cow<'r, str>> {
        let mut explanation = Self::explained(limiter, watcher, record);
        explanation.policy_is_current &= record.at >= self.since();
        explanation
    }

    /// Returns the explanation of a past decision of this node.
    pub(crate) fn explained<'r>(
        limiter: &Limiter<S>,
        watcher: &Watcher,
        record: &'r Record,
    ) -> Explanation<Cow<'r, str>> {
        let (hypothetical, is_hidden, is_tagged) = (false, false, true);
        ExplanationContext { limiter, watcher, hypothetical, is_hidden, is_tagged }.explanation(record)
    }

    /// Explains the decision that a request would get now.
    pub(crate) async fn consider(&self, body: &[u8], role: Role) -> Result<Reply, Problem> {
        let watcher = self.watching()?;
        let request: CheckRequest<'_> = read(body, FIELDS)?;
        let call = call(&request)?;
        let (limiter, begun) = (self.limiter.load(), self.now());
        let decision = limiter.consider(&call).await.map_err(|error| Problem::outage(&error))?;
        let now = self.now();
        let record =
            watcher.describe(limiter.policy(), limiter.version(), Some(call.subject()), &decision, now);
        let record = Record { took: now.since(begun), ..record };
        let policy = limiter.policy();
        let (is_hidden, is_tagged) = (hides_named(policy, role), tags_named(policy, role));
        let context =
            ExplanationContext { limiter: &limiter, watcher, hypothetical: true, is_hidden, is_tagged };
        Ok(json_of(&context.explanation(&record)))
    }

    /// Returns the watcher, if the limiter is observed.
    pub(crate) fn watching(&self) -> Result<&Watcher, Problem> {
        self.watcher.get().ok_or_else(|| {
            Problem::conflict("observation is off: the policy file has `observe: off`; remove it and restart")
        })
    }
}

fn forgotten(id: DecisionId, watcher: &Watcher, records: Option<&RecordLog>, nodes: usize) -> Problem {
    let kept = watcher.kept();
    let since = match kept.since.map(date) {
        Some(since) => format!("{} refusals are, with all of them since {since}", kept.refusals),
        None => "no refusal is remembered yet".to_owned(),
    };
    Problem::not_found(format!(
        "no decision `{id}` is remembered: {since} (`observe.records` is {}: so many, and a quarter as many \
         first refusals of keys); of requests that were admitted only a sample is{}{}",
        kept.records,
        records.map(on_disk).unwrap_or_default(),
        if nodes > 1 { "; no other node has answered in time either" } else { "" }
    ))
}

/// Says since when decisions are on disk.
fn on_disk(records: &RecordLog) -> String {
    let status = records.status();
    match status.oldest.map(date) {
        Some(since) => format!("; the decision log has {} decisions since {since}", status.records),
        None => "; the decision log is empty".to_owned(),
    }
}
