//! Queries the server for a snapshot.
//!
//! It requests the latest decisions and not those since the last poll, because a busy server has more
//! in a second than a person can read.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tollgate_daemon::Failure;

use super::data::{Decisions, Limit, Overview, Stats, Top, is_decisions, is_overview, is_stats, is_top};
use crate::client::{Question, Server, explained, is_explanation, segment};

/// The number of decisions in one request.
const MAX_DECISIONS_PER_POLL: u64 = 100;

/// A snapshot of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) overview: Overview,
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
        let overview: Overview = self.read(&Question::get("/v1/overview", is_overview))?;
        let stats = self.read(&Question::get("/v1/stats", is_stats))?;
        let top = self.read(&Question::get("/v1/top?most=50", is_top))?;
        let latest = format!("/v1/decisions?most={MAX_DECISIONS_PER_POLL}");
        let decisions = self.read(&Question::get(latest, is_decisions))?;
        Ok(Snapshot { overview, stats, top, decisions })
    }

    /// Returns the snapshot as unparsed JSON.
    pub(super) fn raw(&self) -> Result<Value, Failure> {
        let overview = self.0.ask(&Question::get("/v1/overview", is_overview))?.read;
        let stats = self.0.ask(&Question::get("/v1/stats", is_stats))?.read;
        let top = self.0.ask(&Question::get("/v1/top", is_top))?.read;
        Ok(json!({"overview": overview, "stats": stats, "top": top}))
    }

    /// Returns the lines that explain a decision.
    pub(super) fn explain(&self, id: &str) -> Result<Vec<String>, Failure> {
        let answer = self.0.ask(&Question::get(format!("/v1/decisions/{}", segment(id)), is_explanation))?;
        Ok(explained(&answer.read))
    }

    /// Returns one limit with its last five minutes.
    pub(super) fn limit(&self, name: &str) -> Result<Option<Limit>, Failure> {
        let path = format!("/v1/stats?limit={}", segment(name));
        let stats: Stats = self.read(&Question::get(path, is_stats))?;
        Ok(stats.limits.into_iter().find(|it| it.name.0 == name))
    }

    fn read<T: DeserializeOwned>(&self, question: &Question) -> Result<T, Failure> {
        self.0.read(&self.0.ask(question)?)
    }
}
