//! `GET /v1/decisions`: recent decisions, for polling.
//!
//! A client that passes `next` of the last response as `after` gets the decisions since then, and the
//! number of decisions that were evicted in between.

use std::sync::Arc;

use http::request::Parts;
use serde::Serialize;
use tollgate::{Span, Store};
use tollgate_telemetry::Record;

use crate::api::Inner;
use crate::json::MAX_UNITS;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::{date, tag};

/// The default number of decisions in a response.
const DEFAULT_DECISIONS: u64 = 100;
/// The maximum number of decisions in a response.
pub(crate) const MAX_DECISIONS: u64 = 1_000;

#[derive(Serialize)]
struct DecisionsResponse<'r> {
    next: u64,
    missed: u64,
    decisions: Vec<DecisionSummary<'r>>,
}

#[derive(Serialize)]
struct DecisionSummary<'r> {
    seq: u64,
    id: String,
    at: Option<String>,
    allowed: bool,
    fate: &'static str,
    method: &'r str,
    path: &'r str,
    client: Option<&'r str>,
    limit: Option<&'r str>,
    key: Option<&'r str>,
    tag: Option<String>,
    retry_after_ms: Option<u64>,
    degraded: bool,
    took_us: u64,
}

/// Returns whole milliseconds, rounded up, so that a caller that waits as long does not return early.
pub(crate) fn millis(wait: Span) -> u64 {
    wait.as_millis_ceil().max(1)
}

impl<'r> DecisionSummary<'r> {
    fn of(record: &'r Record) -> Self {
        let limiting = record.limiting.and_then(|at| record.limits.get(at));
        Self {
            seq: record.seq,
            id: record.id.to_string(),
            at: date(record.at),
            allowed: record.allowed,
            fate: record.fate.as_str(),
            method: &record.method,
            path: &record.path,
            client: record.client.as_deref(),
            limit: record.limit.as_deref(),
            key: limiting.map(|limit| &*limit.key),
            tag: record.tag.map(tag),
            retry_after_ms: record.retry_after.map(millis),
            degraded: record.degraded,
            took_us: record.took.as_micros(),
        }
    }
}

impl<S: Store> Inner<S> {
    pub(crate) fn decisions(&self, asked: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(asked.uri.query(), &["after", "most", "refused"])?;
        let (after, refused) = (query.number("after", 0, MAX_UNITS)?, query.flag("refused")?);
        let most = query.number("most", 1, MAX_DECISIONS)?.unwrap_or(DEFAULT_DECISIONS);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let watcher = self.watching()?;
        // Before the records are read: decisions in between are returned by the next request.
        let last = watcher.kept().last;
        let (mut records, missed) = match after {
            Some(seq) => watcher.records_after(seq, most),
            None => (watcher.latest_records(most, refused), 0),
        };
        // A number that was not assigned yet comes from an earlier process.
        let read = after.map_or(last, |after| if after > last { 0 } else { after });
        let next = records.last().map_or(read, |record| record.seq.max(read));
        records.retain(|record: &Arc<Record>| !refused || !record.allowed);
        let decisions = records.iter().map(|record| DecisionSummary::of(record)).collect();
        Ok(json_of(&DecisionsResponse { next, missed, decisions }))
    }
}
