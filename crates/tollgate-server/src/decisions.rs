//! `GET /v1/decisions`: recent decisions, for polling.
//!
//! A client that passes `next` of the last response as `after` gets the decisions since then, and the
//! number of decisions that were evicted in between.
//!
//! With a condition (`since`, `until`, `limit`, `key`) it is a search, in the decision log on disk if there
//! is one, else in memory. A search is paged backward: `earlier` of a response is `before` of the next
//! request.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use tollgate::{Span, Store};
use tollgate_api::{DecisionLine, Decisions, MAX_DECISIONS, MAX_UNITS};
use tollgate_records::RecordQuery;
use tollgate_telemetry::{Record, Watcher};

use crate::api::Inner;
use crate::body::quoted;
use crate::problem::Problem;
use crate::query::{Query, point_in_time};
use crate::reply::{Reply, json_of};
use crate::status::{date, tag};

/// The default number of decisions in a response.
const DEFAULT_DECISIONS: u64 = 100;
/// The number of latest records that a search in memory reads.
const MAX_SEARCHED_IN_MEMORY: usize = 16_384;

/// Returns whole milliseconds, rounded up, so that a caller that waits as long does not return early.
pub(crate) fn millis(wait: Span) -> u64 {
    wait.as_millis_ceil().max(1)
}

/// Returns the shape of a decision in a list, with texts that are borrowed or owned.
pub fn decision_line<'r, T: From<Cow<'r, str>> + Default>(record: &'r Record) -> DecisionLine<T> {
    let limiting = record.limiting.and_then(|at| record.limits.get(at));
    let borrowed = |text: &'r str| T::from(Cow::Borrowed(text));
    let owned = |text: String| T::from(Cow::Owned(text));
    DecisionLine {
        seq: record.seq,
        id: owned(record.id.to_string()),
        at: owned(date(record.at)),
        allowed: record.allowed,
        fate: borrowed(record.fate.as_str()),
        priority: record.priority.as_deref().map(borrowed),
        method: borrowed(&record.method),
        path: borrowed(&record.path),
        client: record.client.as_deref().map(borrowed),
        limit: record.limit.as_deref().map(borrowed),
        key: limiting.map(|limit| borrowed(&limit.key)),
        tag: record.tag.map(|it| owned(tag(it))),
        retry_after_ms: record.retry_after.map(millis),
        wait_ms: record.wait().map(millis),
        degraded: record.degraded,
        took_us: record.took.as_micros(),
    }
}

impl<S: Store> Inner<S> {
    pub(crate) async fn decisions(&self, parts: &Parts) -> Result<Reply, Problem> {
        let known = ["after", "most", "refused", "since", "until", "limit", "key", "before"];
        let query = Query::of(parts.uri.query(), &known)?;
        let (after, refused) = (query.number("after", 0, MAX_UNITS)?, query.flag("refused")?);
        let most = query.number("most", 1, MAX_DECISIONS)?.unwrap_or(DEFAULT_DECISIONS);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let watcher = self.watching()?;
        if let Some(search) = self.search_of(&query, refused, most)? {
            if after.is_some() {
                return Err(Problem::conflict(
                    "`after` is for polling, without conditions; the pages of a search continue with `before`",
                ));
            }
            return self.search(watcher, search).await;
        }
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
        let decisions: Vec<DecisionLine<Cow<'_, str>>> =
            records.iter().map(|record| decision_line(record)).collect();
        Ok(json_of(&Decisions { next, missed, earlier: None, decisions }))
    }

    /// Returns the search that a query describes; `None` if it has no condition.
    fn search_of(
        &self,
        query: &Query<'_>,
        refused: bool,
        most: usize,
    ) -> Result<Option<RecordQuery>, Problem> {
        let now = self.now();
        let text = |name: &str| Ok(query.one(name)?.map(str::to_owned));
        let before = query.one("before")?.map(|text| {
            text.parse().map_err(|_| {
                let shown = quoted(text);
                Problem::bad_request(format!(
                    "`before` must be the `earlier` of a response, such as `before=7-1024`, not `{shown}`"
                ))
            })
        });
        let search = RecordQuery {
            since: point_in_time(query, "since", now)?,
            until: point_in_time(query, "until", now)?,
            limit: text("limit")?,
            key: text("key")?,
            refused,
            before: before.transpose()?,
            most,
        };
        let nothing = RecordQuery { refused, most, ..RecordQuery::default() };
        Ok(Some(search).filter(|search| *search != nothing))
    }

    async fn search(&self, watcher: &Watcher, search: RecordQuery) -> Result<Reply, Problem> {
        let next = watcher.kept().last;
        let Some(records) = self.records.get().cloned() else {
            if search.before.is_some() {
                return Err(Problem::conflict(
                    "`before` continues a search of the decision log, and there is none (`records: {dir: …}`)",
                ));
            }
            let mut found = watcher.latest_records(MAX_SEARCHED_IN_MEMORY, search.refused);
            found.retain(|record| search.matches(record));
            let decisions = found.iter().skip(found.len().saturating_sub(search.most));
            let decisions: Vec<DecisionLine<Cow<'_, str>>> =
                decisions.map(|record| decision_line(record)).collect();
            return Ok(json_of(&Decisions { next, missed: 0, earlier: None, decisions }));
        };
        let page = self.offload.run(move || records.search(&search)).await?;
        let earlier = page.next.map(|cursor| Cow::Owned(cursor.to_string()));
        let decisions: Vec<DecisionLine<Cow<'_, str>>> =
            page.records.iter().rev().map(decision_line).collect();
        Ok(json_of(&Decisions { next, missed: 0, earlier, decisions }))
    }
}
