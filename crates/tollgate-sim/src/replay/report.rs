//! What a replay found. As JSON this is what `tollgate replay --json` prints; text and page are made from it and from nothing else, so
//! that no number can differ between them.
//!
//! Settled: fields are added at the end of a struct, none is renamed. Numbers are whole but for factors; shares are left to the reader.

use serde::Serialize;

use crate::distance::Disagreement;

/// What a replay found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Of the first policy; its fields stand at the top.
    #[serde(flatten)]
    pub policy: PolicyReport,
    /// Lines that are no request.
    pub skipped_lines: u64,
    /// Requests that came too late in the log to be put in order: counted at the time of their neighbours.
    pub late_lines: u64,
    /// The time of the first request, RFC 3339.
    pub from: Option<String>,
    /// The time of the last.
    pub to: Option<String>,
    /// The policies after the first, each beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Comparison>,
    /// What a reader should know before believing the numbers.
    pub notes: Vec<String>,
}

/// What one policy did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyReport {
    /// What it is called: its file.
    pub policy: String,
    /// Requests put to it.
    pub requests: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Of all, let through by its `allow` list.
    pub allow_listed: u64,
    /// Of the refused, the ones on its `deny` list.
    pub deny_listed: u64,
    /// Of the refused, the ones whose path servers may take for different places.
    pub ambiguous_paths: u64,
    /// Of all, the ones that no limit was asked about, and no list.
    pub without_limit: u64,
    /// The clients, by address. Requests whose address is not in the log are nobody's.
    pub clients: Keys,
    /// The clients with the most refusals, the worst first.
    pub top_clients: Vec<TopKey>,
    /// In file order; those of `--limit` only, if that was asked for.
    pub limits: Vec<LimitReport>,
    /// When it refused, all limits together.
    pub heat: Heat,
}

/// What one limit did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LimitReport {
    /// Its name.
    pub name: String,
    /// `token-bucket` and so on.
    pub algorithm: String,
    /// Its numbers, as a policy writes them; of several windows, joined by `and`.
    pub amount: String,
    /// By whom it counts.
    pub by: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Requests it was asked about.
    pub checked: u64,
    /// Of those, the ones it had no room for, whatever others said. In shadow mode: would have had.
    pub refused: u64,
    /// Of those, the ones it decided: whoever waits for it has waited for all. None in shadow mode.
    pub decided: u64,
    /// Of the refused, the ones it refuses without counting: `blocked`, or a missing key that it refuses.
    pub blocked: u64,
    /// Requests whose key was not in the log, so that something stood in for it.
    pub without_key: u64,
    /// Its keys.
    pub keys: Keys,
    /// The keys with the most refusals, the worst first.
    pub top: Vec<TopKey>,
    /// When.
    pub heat: Heat,
    /// What other numbers would have refused, this limit alone. `None`: it has no numbers that can be varied, or was not asked.
    pub curve: Option<Curve>,
    /// How far it is from an exact log of its numbers; `None`: nothing to compare with.
    pub exactness: Option<Exactness>,
    /// What to write instead, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<Suggestion>,
}

/// How many different keys came, and how many were refused at least once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Keys {
    /// Different ones.
    pub seen: u64,
    /// Of those, refused at least once.
    pub refused: u64,
    /// Whether these are estimates: there were too many to remember each.
    pub estimated: bool,
}

/// A key that was refused a lot.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopKey {
    /// The key, as the policy's `privacy` shows it.
    pub key: String,
    /// What it asked. Zero: not known (only where `estimated`).
    pub requests: u64,
    /// Of that, refused.
    pub refused: u64,
    /// Whether these are estimates: there were too many keys to follow each. Then `refused` is at least this.
    pub estimated: bool,
}

/// How much happened when. All strips of a report have the same start and the same step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Heat {
    /// The start of the first cell, in seconds since 1970.
    pub from: u64,
    /// How long a cell is, in seconds.
    pub step: u64,
    /// Requests, a cell each.
    pub requests: Vec<u64>,
    /// Refused, a cell each.
    pub refused: Vec<u64>,
}

/// What other numbers would have refused, were this limit the only one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Curve {
    /// Requests put to each candidate: those that met the limit's own numbers, and not those of a plan or an override.
    pub requests: u64,
    /// Different keys of those.
    pub keys: u64,
    /// Whether the numbers below are estimates: there were too many keys to follow each.
    pub estimated: bool,
    /// By rate, with the burst in proportion; from small to large, the limit's own among them.
    pub rates: Vec<CurvePoint>,
    /// By burst at the limit's own rate, if it has one; from small to large, the limit's own among them.
    pub bursts: Vec<CurvePoint>,
}

/// One candidate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CurvePoint {
    /// Its numbers, as a policy writes them.
    pub amount: String,
    /// What is varied: among `rates` the units in a period (of the first window), among `bursts` the burst.
    pub value: u64,
    /// By how much that differs from the limit's own, as a factor: 1 for the limit's own.
    pub factor: f64,
    /// Requests it would have refused.
    pub refused: u64,
    /// Different keys it would have refused at least once.
    pub keys_refused: u64,
}

/// How far a limit is from an exact log.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Exactness {
    /// Each remembering what it admitted itself.
    pub closed: Disagreement,
    /// Each shown every request; `None` for buckets.
    pub open: Option<Disagreement>,
    /// Whether only a sample of the keys was compared.
    pub sampled: bool,
}

/// Numbers that would have refused as little as was asked for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Suggestion {
    /// What was asked for, in words: `at most 1 % of requests`.
    pub asked: String,
    /// What does it, the best first. Empty: nothing that was tried does.
    pub proposals: Vec<Proposal>,
    /// Whether the numbers are estimates: there were too many keys to follow each.
    pub estimated: bool,
}

/// Numbers to write instead.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Proposal {
    /// As a policy writes them.
    pub amount: String,
    /// What differs from the limit's own: `rate` (with the burst in proportion) or `burst`.
    pub varies: String,
    /// Requests they would have refused, of as many as `curve` says.
    pub refused: u64,
    /// Different keys they would have refused at least once.
    pub keys_refused: u64,
}

/// A second policy beside the first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// What it did.
    #[serde(flatten)]
    pub policy: PolicyReport,
    /// Refused by this one and not by the first.
    pub newly_refused: u64,
    /// Refused by the first and not by this one.
    pub newly_admitted: u64,
    /// The clients whose requests changed fate most.
    pub clients_moved: Vec<ChangedRequests>,
    /// The endpoints (method and path, ids folded: `GET /users/{n}`) whose requests did.
    pub endpoints_moved: Vec<ChangedRequests>,
    /// The limits that did it: of newly refused requests the one of this policy, of newly admitted ones that of the first.
    pub limits_moved: Vec<ChangedRequests>,
    /// The first few that changed fate, of either kind.
    pub examples: Vec<Example>,
}

/// Whose requests changed fate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChangedRequests {
    /// Whose.
    pub name: String,
    /// Refused now, and not before.
    pub newly_refused: u64,
    /// Refused before, and not now.
    pub newly_admitted: u64,
    /// Whether these are at most this much: there were too many to follow each.
    pub estimated: bool,
}

/// One request that changed fate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Example {
    /// When, RFC 3339.
    pub at: String,
    /// Who, as the policy's `privacy` shows it; empty if not known.
    pub client: String,
    /// `GET` and so on.
    pub method: String,
    /// What was asked for; where keys are hidden, with ids folded.
    pub path: String,
    /// What the first policy did: `admitted`, `refused by LIMIT`, `refused by the deny list`.
    pub before: String,
    /// What this one did.
    pub after: String,
}
