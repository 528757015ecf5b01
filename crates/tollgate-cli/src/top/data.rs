//! Responses of the API, parsed for the screen.
//!
//! Any text may come from a caller of the gateway, so it is sanitized and truncated while it is parsed.
//! Missing fields are empty.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tollgate_document::sanitize::printable;

use super::number;
use crate::client::tagged;

/// The maximum length of a text in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The maximum number of lines in a list.
const MAX_LINES: usize = 100;

/// Sanitized text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text(pub(super) String);

impl Text {
    fn of(text: &str) -> Self {
        let cut: String = text.chars().take(MAX_TEXT_CHARS).collect();
        Self(printable(&cut))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sanitized text of several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines(pub(super) Vec<Text>);

impl<'de> Deserialize<'de> for Lines {
    /// Null is an empty list.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        Ok(Self(text.lines().filter(|line| !line.is_empty()).take(MAX_LINES).map(Text::of).collect()))
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    /// Null is an empty text.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::<String>::deserialize(from)?.as_deref().map(Self::of).unwrap_or_default())
    }
}

/// A number; zero if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(from)?.unwrap_or_default()))
    }
}

/// The response of `GET /v1/overview`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overview {
    pub(super) now: Text,
    pub(super) started_at: Text,
    pub(super) version: Text,
    pub(super) observing: bool,
    pub(super) policy: Policy,
    pub(super) mode: Text,
    pub(super) store: Store,
    pub(super) totals: Totals,
    /// Missing in older servers.
    pub(super) window: Option<Window>,
    pub(super) series: Series,
    pub(super) latency_us: Option<Latency>,
    pub(super) alerts: Vec<Alert>,
}

impl Overview {
    /// Returns the counts of the last five minutes, over the same window as the other lists.
    pub(super) fn window(&self) -> Window {
        let sum = |values: &[u64]| values.iter().fold(0, |sum: u64, it| sum.saturating_add(*it));
        self.window.clone().unwrap_or_else(|| Window {
            allowed: sum(&self.series.allowed),
            refused: sum(&self.series.refused),
        })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Policy {
    pub(super) version: u64,
    pub(super) limits: u64,
    pub(super) switched: u64,
    pub(super) reload_error: Lines,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) kind: Text,
    pub(super) address: Text,
    pub(super) state: Text,
    pub(super) breaker: Text,
    pub(super) since: Text,
    pub(super) error: Text,
    pub(super) degraded_decisions: u64,
    pub(super) nodes: u64,
    pub(super) keys: Option<u64>,
}

/// Counts since the start of the server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Totals {
    pub(super) allowed: u64,
    pub(super) unlimited: u64,
    pub(super) limited: u64,
    pub(super) blocked: u64,
    pub(super) uncountable: u64,
}

/// Counts of the last five minutes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Window {
    pub(super) allowed: u64,
    pub(super) refused: u64,
}

/// Counts per second, the oldest first; the last second is in progress.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Series {
    pub(super) allowed: Vec<u64>,
    pub(super) refused: Vec<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p99: u64,
}

/// A key that has been exhausted for minutes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Alert {
    pub(super) limit: Text,
    pub(super) key: Text,
    pub(super) tag: Text,
    pub(super) for_s: u64,
}

/// The response of `GET /v1/stats`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Stats {
    pub(super) limits: Vec<Limit>,
}

/// A limit, over the last five minutes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Limit {
    pub(super) name: Text,
    pub(super) mode: Text,
    pub(super) policy_mode: Text,
    pub(super) candidate_of: Text,
    /// False for a limit that is not counted separately: its numbers are unknown.
    pub(super) counted: Option<bool>,
    pub(super) allowed: Count,
    pub(super) limited: Count,
    pub(super) shadow_limited: Count,
    pub(super) blocked: Count,
    pub(super) exhausted: Count,
    pub(super) soft: Count,
    pub(super) degraded: Count,
    pub(super) remaining_min: Option<f64>,
    pub(super) agreement: Option<Agreement>,
    pub(super) series: Option<Steps>,
}

impl Limit {
    pub(super) fn refused(&self) -> u64 {
        self.limited.0.saturating_add(self.blocked.0)
    }

    pub(super) fn is_counted(&self) -> bool {
        self.counted != Some(false)
    }
}

/// The agreement of a candidate and its live limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Agreement {
    /// The time since which both have their current rules.
    pub(super) since: Text,
    pub(super) both_allow: u64,
    pub(super) only_candidate_allows: u64,
    pub(super) only_live_allows: u64,
    pub(super) both_refuse: u64,
}

/// A limit in steps of five seconds, the oldest first.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Steps {
    pub(super) allowed: Vec<u64>,
    pub(super) limited: Vec<u64>,
    pub(super) remaining: Vec<Option<f64>>,
}

/// The response of `GET /v1/top`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Top {
    pub(super) keys: Vec<Key>,
    pub(super) routes: Vec<Route>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Key {
    pub(super) limit: Text,
    #[serde(rename = "key")]
    pub(super) name: Text,
    pub(super) tag: Text,
    pub(super) refused: u64,
    pub(super) share: f64,
}

impl Key {
    /// Returns the key, with its tag if it is shortened.
    pub(super) fn shown(&self) -> String {
        tagged(&self.name.0, &self.tag.0)
    }
}

impl Alert {
    /// Returns the key, with its tag if it is shortened.
    pub(super) fn shown(&self) -> String {
        tagged(&self.key.0, &self.tag.0)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Route {
    pub(super) method: Text,
    pub(super) path: Text,
    pub(super) requests: u64,
    pub(super) requests_at_least: Option<u64>,
    pub(super) refused: u64,
}

impl Route {
    /// Returns the lower bound of the requests, marked if there may be more.
    pub(super) fn asked(&self) -> String {
        let least = self.requests_at_least.unwrap_or(self.requests);
        format!("{}{}", if least < self.requests { "~" } else { "" }, number(least))
    }
}

/// The response of `GET /v1/decisions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Decisions {
    pub(super) decisions: Vec<Decision>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Decision {
    pub(super) seq: u64,
    pub(super) id: Text,
    pub(super) at: Text,
    pub(super) allowed: bool,
    pub(super) fate: Text,
    pub(super) method: Text,
    pub(super) path: Text,
    pub(super) client: Text,
    pub(super) limit: Text,
    pub(super) key: Text,
    pub(super) tag: Text,
}

impl Decision {
    /// Returns the limit, with the tag of the key if it is shortened.
    pub(super) fn limit_and_tag(&self) -> String {
        match tagged(&self.key.0, &self.tag.0).rsplit_once(" #") {
            Some((_, digits)) if self.key.0.contains('…') => format!("{} #{digits}", self.limit),
            _ => self.limit.to_string(),
        }
    }
}

/// Whether a response has the shape of an overview.
pub(super) fn is_overview(read: &Value) -> bool {
    read["policy"].is_object() && read["store"].is_object() && read["totals"].is_object()
}

pub(super) fn is_stats(read: &Value) -> bool {
    read["window_s"].is_u64() && read["limits"].is_array()
}

pub(super) fn is_top(read: &Value) -> bool {
    read["keys"].is_array() && read["routes"].is_array()
}

pub(super) fn is_decisions(read: &Value) -> bool {
    read["next"].is_u64() && read["decisions"].is_array()
}
