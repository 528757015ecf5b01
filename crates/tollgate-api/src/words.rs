//! Words and patterns that several shapes have in common.

pub(crate) const MODES: [&str; 3] = ["enforce", "shadow", "off"];
pub(crate) const SWITCHES: [&str; 5] = ["enforce", "shadow", "off", "frozen", "policy"];
pub(crate) const ALGORITHMS: [&str; 7] = [
    "token-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-log",
    "concurrency",
    "adaptive",
    "leaky-queue",
];
pub(crate) const FATES: [&str; 8] = [
    "admitted",
    "refused",
    "allow_listed",
    "deny_listed",
    "ambiguous_path",
    "blocked",
    "uncountable",
    "shed",
];
pub(crate) const PRIVACY: [&str; 3] = ["plain", "hashed", "truncated"];
pub(crate) const ROLES: [&str; 2] = ["admin", "reader"];

/// The pattern of an id or a tag that the server writes.
pub(crate) const HEX: &str = "^[0-9a-f]{16}$";
/// The pattern of an id in a request.
pub(crate) const ANY_HEX: &str = "^[0-9A-Fa-f]{16}$";
