//! The report of a replay, as `tollgate replay --json` prints it. Text and page are rendered from this report only,
//! so their numbers cannot differ.
//!
//! Compatibility: fields are added at the end of a struct and never renamed. Numbers are integers except for factors;
//! shares are left to the reader.

use serde::Serialize;

use crate::distance::Disagreement;
use crate::waits::Waits;

/// The report of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The first policy; its fields are at the top level of the JSON.
    #[serde(flatten)]
    pub policy: PolicyReport,
    /// Lines that are not a request.
    pub skipped_lines: u64,
    /// Requests that came too late in the log to be sorted; they count at the time of their neighbors.
    pub late_lines: u64,
    /// Time of the first request, RFC 3339.
    pub from: Option<String>,
    /// Time of the last request, RFC 3339.
    pub to: Option<String>,
    /// The other policies, each compared with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Comparison>,
    /// Notes on the accuracy of the numbers.
    pub notes: Vec<String>,
}

/// The results of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyReport {
    /// Name of the policy: its file.
    pub policy: String,
    /// Requests that were replayed.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Requests that the `allow` list admitted.
    pub allow_listed: u64,
    /// Refused requests that the `deny` list refused.
    pub deny_listed: u64,
    /// Refused requests with a path that servers may read differently.
    pub ambiguous_paths: u64,
    /// Requests to which neither a limit nor a list applied.
    pub without_limit: u64,
    /// Clients, by address. Requests without an address in the log are not counted.
    pub clients: Keys,
    /// The clients with the most refusals, in descending order.
    pub top_clients: Vec<TopKey>,
    /// Limits in the order of the policy; only that of `--limit`, if given.
    pub limits: Vec<LimitReport>,
    /// Requests and refusals of all limits over time.
    pub heat: Heat,
}

/// The results of one limit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LimitReport {
    /// Name of the limit.
    pub name: String,
    /// Algorithm, such as `token-bucket`.
    pub algorithm: String,
    /// Numbers as in a policy; several windows are joined by `and`.
    pub amount: String,
    /// Key of the limit, as in `by`.
    pub by: String,
    /// Mode: `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Requests that the limit checked.
    pub checked: u64,
    /// Requests that the limit refused, regardless of other limits. In shadow mode: would have refused.
    pub refused: u64,
    /// Refused requests that the limit decided: its wait was the longest. Zero in shadow mode.
    pub decided: u64,
    /// Refused requests that the limit refuses without counting: `blocked`, or a missing key.
    pub blocked: u64,
    /// Requests without the key in the log, for which a substitute was used.
    pub without_key: u64,
    /// Keys of the limit.
    pub keys: Keys,
    /// The keys with the most refusals, in descending order.
    pub top: Vec<TopKey>,
    /// Requests and refusals over time.
    pub heat: Heat,
    /// Refusals that other numbers would have caused, for this limit alone. `None` if the limit has no numbers to
    /// vary, or the curve was not requested.
    pub curve: Option<Curve>,
    /// Distance from an exact log with the same numbers; `None` if there is no comparable log.
    pub exactness: Option<Exactness>,
    /// Proposed numbers, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<Suggestion>,
    /// The waits of admitted requests, if the limit has a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
}

/// Distinct keys, and those that were refused at least once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Keys {
    /// Distinct keys.
    pub seen: u64,
    /// Keys that were refused at least once.
    pub refused: u64,
    /// Whether the numbers are estimates because there were too many keys.
    pub estimated: bool,
}

/// A key with many refusals.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopKey {
    /// The key, displayed according to the policy's `privacy`.
    pub key: String,
    /// Requests of the key. Zero if unknown, which only happens with `estimated`.
    pub requests: u64,
    /// Refused requests.
    pub refused: u64,
    /// Whether the numbers are estimates because there were too many keys. Then `refused` is a lower bound.
    pub estimated: bool,
}

/// Counts over time. All strips of a report have the same start and step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Heat {
    /// Start of the first cell, in seconds since 1970.
    pub from: u64,
    /// Length of a cell, in seconds.
    pub step: u64,
    /// Requests per cell.
    pub requests: Vec<u64>,
    /// Refusals per cell.
    pub refused: Vec<u64>,
}

/// Refusals that other numbers would have caused if this limit were the only one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Curve {
    /// Requests per candidate: those under the limit's own numbers, without plans and overrides.
    pub requests: u64,
    /// Distinct keys of those requests.
    pub keys: u64,
    /// Whether the numbers below are estimates because there were too many keys.
    pub estimated: bool,
    /// Candidates by rate, with the burst in proportion, in ascending order, including the limit's own numbers.
    pub rates: Vec<CurvePoint>,
    /// Candidates by burst at the limit's own rate, if it has a burst, in ascending order, including the limit's own
    /// numbers.
    pub bursts: Vec<CurvePoint>,
}

/// One candidate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CurvePoint {
    /// Numbers as in a policy.
    pub amount: String,
    /// The varied number: in `rates` the units per period of the first window, in `bursts` the burst.
    pub value: u64,
    /// Ratio to the limit's own number; 1 for the limit's own.
    pub factor: f64,
    /// Requests that the candidate would have refused.
    pub refused: u64,
    /// Distinct keys that the candidate would have refused at least once.
    pub keys_refused: u64,
}

/// Distance of a limit from an exact log.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Exactness {
    /// Closed loop: each side counts the requests that it admitted.
    pub closed: Disagreement,
    /// Open loop: both sides count every request; `None` for buckets.
    pub open: Option<Disagreement>,
    /// Whether only a sample of the keys was compared.
    pub sampled: bool,
}

/// Proposed numbers that meet a target.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Suggestion {
    /// The target in words: `at most 1 % of requests`.
    #[serde(rename = "asked")]
    pub target: String,
    /// Proposals, the best first. Empty if no candidate meets the target.
    pub proposals: Vec<Proposal>,
    /// Whether the numbers are estimates because there were too many keys.
    pub estimated: bool,
}

/// A proposal for the numbers of a limit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Proposal {
    /// Numbers as in a policy.
    pub amount: String,
    /// The number that differs from the limit's own: `rate` (with the burst in proportion) or `burst`.
    pub varies: String,
    /// Requests that the proposal would have refused, out of `curve.requests`.
    pub refused: u64,
    /// Distinct keys that the proposal would have refused at least once.
    pub keys_refused: u64,
}

/// A policy compared with the first one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// The results of this policy.
    #[serde(flatten)]
    pub policy: PolicyReport,
    /// Requests that this policy refuses and the first admits.
    pub newly_refused: u64,
    /// Requests that the first policy refuses and this one admits.
    pub newly_admitted: u64,
    /// Clients with the most changed requests.
    pub clients_moved: Vec<ChangedRequests>,
    /// Endpoints (method and path, with ids replaced: `GET /users/{n}`) with the most changed requests.
    pub endpoints_moved: Vec<ChangedRequests>,
    /// Limits that caused the changes: of this policy for newly refused requests, of the first for newly admitted
    /// ones.
    pub limits_moved: Vec<ChangedRequests>,
    /// Examples of changed requests, of both kinds.
    pub examples: Vec<Example>,
}

/// Changed requests of one client, endpoint or limit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangedRequests {
    /// Name of the client, endpoint or limit.
    pub name: String,
    /// Requests that are newly refused.
    pub newly_refused: u64,
    /// Requests that are newly admitted.
    pub newly_admitted: u64,
    /// Whether the numbers are upper bounds because there were too many names.
    pub estimated: bool,
}

/// A request that two policies decide differently.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Example {
    /// Time, RFC 3339.
    pub at: String,
    /// Client, displayed according to the policy's `privacy`; empty if unknown.
    pub client: String,
    /// Method.
    pub method: String,
    /// Path; with ids replaced where the policy hides keys.
    pub path: String,
    /// Decision of the first policy: `admitted`, `refused by LIMIT`, `refused by the deny list`.
    pub before: String,
    /// Decision of this policy.
    pub after: String,
}
