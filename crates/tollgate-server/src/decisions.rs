//! `GET /v1/decisions`: recent decisions, for polling.
//!
//! A client that passes `next` of the last response as `after` gets the decisions since then, and the
//! number of decisions that were evicted in between.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use tollgate::{Span, Store};
use tollgate_api::{DecisionLine, Decisions, MAX_DECISIONS, MAX_UNITS};
use tollgate_telemetry::Record;

use crate::api::Inner;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::{date, tag};

/// The default number of decisions in a response.
const DEFAULT_DECISIONS: u64 = 100;
/// Returns whole milliseconds, rounded up, so that a caller that waits as long does not return early.
pub(crate) fn millis(wait: Span) -> u64 {
    wait.as_millis_ceil().max(1)
}

fn line(record: &Record) -> DecisionLine<Cow<'_, str>> {
    let limiting = record.limiting.and_then(|at| record.limits.get(at));
    DecisionLine {
        seq: record.seq,
        id: record.id.to_string().into(),
        at: date(record.at).into(),
        allowed: record.allowed,
        fate: record.fate.as_str().into(),
        priority: record.priority.as_deref().map(Cow::Borrowed),
        method: (&*record.method).into(),
        path: (&*record.path).into(),
        client: record.client.as_deref().map(Cow::Borrowed),
        limit: record.limit.as_deref().map(Cow::Borrowed),
        key: limiting.map(|limit| (&*limit.key).into()),
        tag: record.tag.map(|it| tag(it).into()),
        retry_after_ms: record.retry_after.map(millis),
        wait_ms: record.wait().map(millis),
        degraded: record.degraded,
        took_us: record.took.as_micros(),
    }
}

impl<S: Store> Inner<S> {
    pub(crate) fn decisions(&self, parts: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(parts.uri.query(), &["after", "most", "refused"])?;
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
        let decisions = records.iter().map(|record| line(record)).collect();
        Ok(json_of(&Decisions { next, missed, decisions }))
    }
}
