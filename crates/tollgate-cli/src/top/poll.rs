//! Queries the server for a snapshot.
//!
//! It requests the latest decisions and not those since the last poll, because a busy server has more
//! in a second than a person can read.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate_daemon::Failure;

use super::data::{Decisions, Fleet, Limit, Overview, Stats, Top};
use crate::client::{Question, Server, explained, segment};

/// The number of decisions in one request.
const MAX_DECISIONS_PER_POLL: u64 = 100;

/// A snapshot of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) overview: Overview,
    /// The nodes that share the store, if there are several.
    pub(super) fleet: Option<Fleet>,
    pub(super) stats: Stats,
    pub(super) top: Top,
    /// The latest decisions, the oldest first.
    pub(super) decisions: Decisions,
}

/// Polls a server.
pub(super) struct Poll(pub(super) Server);

impl Poll {
    pub(super) fn url(&self) -> String {
        self.0.url().to_string()
    }

    pub(super) fn look(&self) -> Result<Snapshot, Failure> {
        let overview: Overview = self.read("/v1/overview")?;
        Ok(Snapshot {
            fleet: if overview.store.nodes > 1 { self.fleet() } else { None },
            overview,
            stats: self.read("/v1/stats")?,
            top: self.read("/v1/top?most=50")?,
            decisions: self.read(format!("/v1/decisions?most={MAX_DECISIONS_PER_POLL}"))?,
        })
    }

    /// Returns the snapshot as JSON, with members that this version does not know.
    pub(super) fn raw(&self) -> Result<Value, Failure> {
        let overview = self.unparsed::<Overview>("/v1/overview")?;
        let stats = self.unparsed::<Stats>("/v1/stats")?;
        let top = self.unparsed::<Top>("/v1/top")?;
        // A server of an earlier version does not know other nodes.
        let fleet = self.unparsed::<Fleet>("/v1/fleet").ok();
        Ok(json!({"overview": overview, "fleet": fleet, "stats": stats, "top": top}))
    }

    /// Returns the nodes that share the store. A server of an earlier version does not know them.
    fn fleet(&self) -> Option<Fleet> {
        self.read("/v1/fleet").ok()
    }

    /// Returns the lines that explain a decision.
    pub(super) fn explain(&self, id: &str) -> Result<Vec<String>, Failure> {
        self.read(format!("/v1/decisions/{}", segment(id))).map(|it| explained(&it))
    }

    /// Returns one limit with its last five minutes.
    pub(super) fn limit(&self, name: &str) -> Result<Option<Limit>, Failure> {
        let stats: Stats = self.read(format!("/v1/stats?limit={}", segment(name)))?;
        Ok(stats.limits.into_iter().find(|it| it.name.0 == name))
    }

    fn read<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, Failure> {
        self.0.ask(&Question::get(path)).map(|answer| answer.value)
    }

    /// Returns a response that has the shape of `T`, with all of its members.
    fn unparsed<T: DeserializeOwned>(&self, path: &str) -> Result<Value, Failure> {
        let answer = self.0.ask::<T>(&Question::get(path))?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
    }
}
