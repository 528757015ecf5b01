//! The words of a limit: its own, those of its choices, and their names in other tools.

#[cfg(feature = "schema")]
use schemars::JsonSchema;

use tollgate_document::{Synonyms, Words};

#[cfg(feature = "schema")]
use super::super::sections::word_schema;
use super::{Algorithm, Align};
use crate::limit::{ChargeTime, Missing, Mode, OnHangup, OnOutage, Scope};

pub(crate) const WORDS: Words = Words {
    section: "a limit",
    known: &[
        "name",
        "endpoint",
        "except",
        "method",
        "host",
        "headers",
        "descriptor",
        "rlqs",
        "domain",
        "quota",
        "by",
        "missing",
        "bucket",
        "rate",
        "windows",
        "slots",
        "queue",
        "fair_by",
        "ttl",
        "on_hangup",
        "owner",
        "algorithm",
        "align",
        "timezone",
        "parts",
        "strict",
        "count_denied",
        "cost",
        "charge",
        "mode",
        "plans",
        "overrides",
        "on_outage",
        "lease",
        "scope",
        "dialects",
        "soft",
        "candidate",
        "expect",
    ],
    synonyms: &[
        ("endpoint", &["path", "paths", "route", "url", "uri"]),
        ("except", &["exclude", "excluding", "unless", "skip", "ignore"]),
        ("method", &["verb"]),
        ("descriptor", &["descriptors", "entries"]),
        ("rlqs", &["quota_bucket", "rate_limit_quota"]),
        ("domain", &["domains"]),
        ("by", &["key", "keys", "per"]),
        ("bucket", &["limit", "requests"]),
        ("bucket: N/unit, burst B", &["burst"]),
        ("bucket: N/unit", &["period", "unit"]),
        ("windows", &["window"]),
        ("algorithm", &["strategy"]),
        ("slots", &["concurrency", "max_concurrent"]),
        ("cost", &["weight"]),
        ("timezone", &["tz"]),
        ("mode", &["enabled"]),
        ("mode: shadow", &["dry_run", "shadow_mode", "shadow"]),
        ("on_outage", &["fail_open"]),
        ("on_hangup", &["on_disconnect", "on_hang_up", "on_cancel", "on_abort"]),
        ("dialects", &["dialect"]),
        ("soft", &["threshold", "warn_at"]),
        ("soft: {at: 80%, tarpit: 250ms}", &["tarpit"]),
        ("candidate", &["canary", "trial"]),
    ],
};

impl Algorithm {
    /// Returns the word in the file.
    pub(crate) fn word(self) -> &'static str {
        ALGORITHMS.iter().find(|(_, it)| *it == self).map_or("", |(word, _)| word)
    }
}

/// The words for amounts. A limit has exactly one of them.
pub(crate) const AMOUNTS: [&str; 4] = ["bucket", "rate", "windows", "slots"];
pub(crate) const ALGORITHMS: [(&str, Algorithm); 7] = [
    ("token-bucket", Algorithm::TokenBucket),
    ("gcra", Algorithm::Gcra),
    ("leaky-queue", Algorithm::LeakyQueue),
    ("fixed-window", Algorithm::FixedWindow),
    ("sliding-window", Algorithm::SlidingWindow),
    ("sliding-log", Algorithm::SlidingLog),
    ("concurrency", Algorithm::Concurrency),
];
pub(super) const ALIGNS: [(&str, Align); 3] =
    [("epoch", Align::Epoch), ("first-request", Align::FirstRequest), ("calendar", Align::Calendar)];
pub(super) const MISSING: [(&str, Missing); 4] =
    [("ip", Missing::Ip), ("refuse", Missing::Refuse), ("shared", Missing::Shared), ("skip", Missing::Skip)];
pub(crate) const MODES: [(&str, Mode); 3] =
    [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
pub(crate) const OUTAGES: [(&str, OnOutage); 3] =
    [("local", OnOutage::Local), ("allow", OnOutage::Allow), ("deny", OnOutage::Deny)];
pub(super) const CHARGES: [(&str, ChargeTime); 2] =
    [("on-arrival", ChargeTime::OnArrival), ("afterwards", ChargeTime::Afterwards)];
pub(super) const CHARGE_SYNONYMS: Synonyms = &[
    ("on-arrival", &["before", "first", "arrival", "on_arrival", "immediately"]),
    ("afterwards", &["after", "afterward", "late", "later", "end", "stream-done", "on_stream_done"]),
];
pub(super) const SCOPES: [(&str, Scope); 2] = [("region", Scope::Region), ("global", Scope::Global)];
pub(super) const SCOPE_SYNONYMS: Synonyms =
    &[("region", &["local", "regional", "here"]), ("global", &["all", "world", "shared", "everywhere"])];
pub(crate) const HANGUPS: [(&str, OnHangup); 2] = [("hold", OnHangup::Hold), ("release", OnHangup::Release)];
pub(crate) const HANGUP_SYNONYMS: Synonyms =
    &[("hold", &["keep", "wait", "drain"]), ("release", &["free", "cancel", "abort", "stop"])];
pub(super) const MISSING_SYNONYMS: Synonyms =
    &[("skip", &["ignore", "allow"]), ("refuse", &["deny", "block"]), ("shared", &["global"])];
pub(crate) const MODE_SYNONYMS: Synonyms = &[
    ("enforce", &["on", "yes", "true", "enabled", "block"]),
    ("off", &["no", "false", "disabled"]),
    ("shadow", &["dry", "dry-run", "log", "report"]),
];
pub(crate) const OUTAGE_SYNONYMS: Synonyms = &[
    ("allow", &["open", "fail-open"]),
    ("deny", &["closed", "close", "fail-closed"]),
    ("local", &["memory"]),
];
/// The methods of RFC 9110, common ones of the IANA registry, and `PURGE` of caches.
pub(crate) const METHODS: [&str; 19] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "CONNECT",
    "TRACE",
    "QUERY",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "PURGE",
];

#[cfg(feature = "schema")]
word_schema! {
    AlgorithmWord: ALGORITHMS;
    AlignWord: ALIGNS;
    ChargeWord: CHARGES;
    MissingWord: MISSING;
    ModeWord: MODES;
    OutageWord: OUTAGES;
    HangupWord: HANGUPS;
    ScopeWord: SCOPES;
}
