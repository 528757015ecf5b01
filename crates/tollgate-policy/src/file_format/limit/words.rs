//! The words of a limit: its own, those of its choices, and their names in other tools.

#[cfg(feature = "schema")]
use schemars::JsonSchema;

use tollgate_document::Words;

#[cfg(feature = "schema")]
use super::super::sections::word_schema;
use super::{Algorithm, Align};
use crate::limit::{Missing, Mode, OnHangup, OnOutage};

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
        "domain",
        "quota",
        "by",
        "missing",
        "bucket",
        "rate",
        "windows",
        "slots",
        "queue",
        "ttl",
        "on_hangup",
        "algorithm",
        "align",
        "timezone",
        "parts",
        "strict",
        "count_denied",
        "cost",
        "mode",
        "plans",
        "overrides",
        "on_outage",
        "dialects",
        "soft",
        "candidate",
        "expect",
    ],
    synonyms: &[
        ("path", "endpoint"),
        ("paths", "endpoint"),
        ("route", "endpoint"),
        ("url", "endpoint"),
        ("uri", "endpoint"),
        ("exclude", "except"),
        ("excluding", "except"),
        ("unless", "except"),
        ("skip", "except"),
        ("ignore", "except"),
        ("verb", "method"),
        ("descriptors", "descriptor"),
        ("entries", "descriptor"),
        ("domains", "domain"),
        ("key", "by"),
        ("keys", "by"),
        ("per", "by"),
        ("limit", "bucket"),
        ("requests", "bucket"),
        ("burst", "bucket: N/unit, burst B"),
        ("period", "bucket: N/unit"),
        ("unit", "bucket: N/unit"),
        ("window", "windows"),
        ("strategy", "algorithm"),
        ("concurrency", "slots"),
        ("max_concurrent", "slots"),
        ("weight", "cost"),
        ("tz", "timezone"),
        ("enabled", "mode"),
        ("dry_run", "mode: shadow"),
        ("shadow_mode", "mode: shadow"),
        ("shadow", "mode: shadow"),
        ("fail_open", "on_outage"),
        ("on_disconnect", "on_hangup"),
        ("on_hang_up", "on_hangup"),
        ("on_cancel", "on_hangup"),
        ("on_abort", "on_hangup"),
        ("dialect", "dialects"),
        ("threshold", "soft"),
        ("warn_at", "soft"),
        ("tarpit", "soft: {at: 80%, tarpit: 250ms}"),
        ("canary", "candidate"),
        ("trial", "candidate"),
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
pub(super) const MODES: [(&str, Mode); 3] =
    [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
pub(super) const OUTAGES: [(&str, OnOutage); 3] =
    [("local", OnOutage::Local), ("allow", OnOutage::Allow), ("deny", OnOutage::Deny)];
pub(super) const HANGUPS: [(&str, OnHangup); 2] = [("hold", OnHangup::Hold), ("release", OnHangup::Release)];
pub(super) const HANGUPS_ELSEWHERE: [(&str, &str); 7] = [
    ("keep", "hold"),
    ("wait", "hold"),
    ("drain", "hold"),
    ("free", "release"),
    ("cancel", "release"),
    ("abort", "release"),
    ("stop", "release"),
];
pub(super) const MISSING_SYNONYMS: [(&str, &str); 5] =
    [("ignore", "skip"), ("allow", "skip"), ("deny", "refuse"), ("block", "refuse"), ("global", "shared")];
pub(super) const MODE_SYNONYMS: [(&str, &str); 12] = [
    ("on", "enforce"),
    ("yes", "enforce"),
    ("true", "enforce"),
    ("enabled", "enforce"),
    ("block", "enforce"),
    ("no", "off"),
    ("false", "off"),
    ("disabled", "off"),
    ("dry", "shadow"),
    ("dry-run", "shadow"),
    ("log", "shadow"),
    ("report", "shadow"),
];
pub(super) const OUTAGE_SYNONYMS: [(&str, &str); 6] = [
    ("open", "allow"),
    ("fail-open", "allow"),
    ("closed", "deny"),
    ("close", "deny"),
    ("fail-closed", "deny"),
    ("memory", "local"),
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
    MissingWord: MISSING;
    ModeWord: MODES;
    OutageWord: OUTAGES;
    HangupWord: HANGUPS;
}
