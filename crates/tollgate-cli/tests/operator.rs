//! Operation of the real binary: overrides that persist, log lines, spans, alerts, and access to the
//! API.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

mod admin;
mod alerts;
mod asking;
mod logs;
mod receiver;
mod state;
mod traces;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// One request in an hour, for all callers.
const ONE: &str = "limits:\n  - {name: one, by: global, bucket: 1/hour}\n";
