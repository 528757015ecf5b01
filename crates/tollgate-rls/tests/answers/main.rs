//! What a proxy is told, read and written by the descriptors that clients get.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod calls;
mod files;
mod hostile;
mod policies;
mod refunds;
mod statistics;
mod support;
mod told;
