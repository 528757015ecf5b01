//! `GET /v1/fleet`: the nodes that share a store, and questions between them.
//!
//! Each node leaves a short report in the store once a second. The node that is asked reads the reports
//! of the others, and sums them. A decision that another node made is explained by that node: the asked
//! node leaves the id of the decision in the store as a question, and reads the answer from there.
//!
//! Nodes need not reach each other, and no token leaves a node. Reports and answers come from the store,
//! where others may write: texts are sanitized and cut, numbers are bounded, and an entry that is not a
//! report is ignored and counted.
//!
//! - `report`: the report of this node, and reading those of others.
//! - `question`: explanations by other nodes.
//!
//! The store's part is in `tollgate_store::node_board`, the timer in the binary.

mod question;
mod report;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::request::Parts;
use parking_lot::Mutex;
use tollgate::store::node_board::{MAX_RECORD_BYTES, NodeRecords};
use tollgate::store::{NodeBoard, Store, StoreError};
use tollgate::{Span, Timestamp};
use tollgate_api::{FleetNode, FleetTotals, MAX_FLEET_NODES, NodeCounts};
use tollgate_document::sanitize::printable;

use crate::api::{Api, Inner};
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::date;

/// The time for which reports of other nodes are reused, so that many open dashboards cost one read.
const REUSE: Span = Span::from_millis(500);

/// The other nodes.
pub(crate) struct Fleet {
    board: Arc<dyn NodeBoard>,
    /// The name of this node.
    name: Box<str>,
    last: Mutex<Option<(Timestamp, Arc<NodeRecords>)>>,
    /// The number of questions that this node waits for.
    asking: AtomicUsize,
}

impl Fleet {
    /// Returns the records of all nodes, which may be as old as `REUSE`.
    async fn read(&self, now: Timestamp) -> Result<Arc<NodeRecords>, StoreError> {
        let last = self.last.lock().clone();
        if let Some((_, records)) = last.filter(|(at, _)| now.since(*at) < REUSE) {
            return Ok(records);
        }
        let records = Arc::new(self.board.read().await?);
        *self.last.lock() = Some((now, Arc::clone(&records)));
        Ok(records)
    }
}

impl<S: Store> Api<S> {
    /// Sets the board where this node meets the others, and the name of this node. Only the first call has
    /// an effect.
    #[must_use]
    pub fn with_node_board(self, board: Arc<dyn NodeBoard>, name: &str) -> Self {
        let fleet = Fleet { board, name: name.into(), last: Mutex::default(), asking: AtomicUsize::new(0) };
        let _first = self.0.fleet.set(fleet);
        self
    }

    /// Reports this node to the others, and answers their questions. Call it once a second. Nothing
    /// happens without a board.
    pub async fn publish_node(&self) -> Result<(), StoreError> {
        let Some(fleet) = self.0.fleet.get() else { return Ok(()) };
        let record = self.0.node_report(fleet);
        // Names are bounded, so a record that is too long cannot be made.
        if record.len() > MAX_RECORD_BYTES {
            return Ok(());
        }
        for question in fleet.board.publish(&record).await? {
            self.0.answer_question(fleet, question).await?;
        }
        Ok(())
    }

    /// Removes the report of this node, which is about to stop.
    pub async fn withdraw_node(&self) -> Result<(), StoreError> {
        match self.0.fleet.get() {
            Some(fleet) => fleet.board.withdraw().await,
            None => Ok(()),
        }
    }
}

impl<S: Store> Inner<S> {
    pub(crate) async fn fleet(&self, parts: &Parts) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        let (now, fleet) = (self.now(), self.fleet.get());
        let mut nodes = vec![self.this_node(fleet)];
        let (mut ignored, mut error) = (0, None);
        if let Some(fleet) = fleet {
            match fleet.read(now).await {
                Ok(records) => {
                    ignored = records.unreadable;
                    let others = records.records.iter().filter(|it| it.node != fleet.board.node());
                    for record in others.take(MAX_FLEET_NODES - 1) {
                        match report::read(record) {
                            Some(node) => nodes.push(node),
                            None => ignored += 1,
                        }
                    }
                    nodes[1..].sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
                }
                Err(failure) => error = Some(printable(&in_full(&failure))),
            }
        }
        let silent = (self.limiter.load().nodes() as u64).saturating_sub(nodes.len() as u64);
        Ok(json_of(&tollgate_api::Fleet {
            now: date(now),
            shared: fleet.is_some(),
            totals: totals(&nodes),
            nodes,
            silent,
            ignored,
            error,
        }))
    }
}

/// Formats an error with its cause.
fn in_full(error: &StoreError) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn add(to: &mut NodeCounts, counts: &NodeCounts) {
    to.allowed = to.allowed.saturating_add(counts.allowed);
    to.refused = to.refused.saturating_add(counts.refused);
    to.shadow_limited = to.shadow_limited.saturating_add(counts.shadow_limited);
    to.degraded = to.degraded.saturating_add(counts.degraded);
}

fn totals(nodes: &[FleetNode]) -> FleetTotals {
    let mut totals = FleetTotals { nodes: nodes.len() as u64, ..FleetTotals::default() };
    for node in nodes {
        totals.store_degraded += u64::from(node.store_degraded);
        totals.oldest_ms = totals.oldest_ms.max(node.age_ms);
        totals.leased_keys = totals.leased_keys.saturating_add(node.leases.keys);
        totals.leased_units = totals.leased_units.saturating_add(node.leases.units);
        add(&mut totals.window, &node.window);
        add(&mut totals.lately, &node.lately);
    }
    totals
}
