//! Reports this node to the other nodes that share its store.
//!
//! The reports and the questions of other nodes are in `tollgate_server`; this is the timer.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate_server::Api;

use crate::addresses::machine_name;
use crate::store::{AnyStore, RemoteStore};

/// The interval between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The time that the end waits for the store to take the report back.
const WITHDRAW_TIMEOUT: Duration = Duration::from_millis(500);

/// Lets the API meet the other nodes, if the store has a place for it.
pub(crate) fn join(api: Api<AnyStore>, store: &AnyStore) -> Api<AnyStore> {
    match store.remote().and_then(RemoteStore::node_board) {
        // As in traces, so that a node has one name everywhere.
        Some(board) => api.with_node_board(board, &format!("{}:{}", machine_name(), std::process::id())),
        None => api,
    }
}

/// Reports this node until dropped.
pub(crate) async fn report(api: Api<AnyStore>) {
    let mut ticks = interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // While the store does not answer, other nodes see no report of this node. The state of the store
        // is logged elsewhere.
        let _unanswered = api.publish_node().await;
    }
}

/// Takes the report back, because this node ends.
pub(crate) async fn leave(api: &Api<AnyStore>) {
    let _late = timeout(WITHDRAW_TIMEOUT, api.withdraw_node()).await;
}
