//! Responses of the service, encoded and decoded by the published descriptors.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod calls;
mod ext_authz;
mod files;
mod hostile;
mod json;
mod kuadrant;
mod policies;
mod queues;
mod refunds;
mod statistics;
mod stream_done;
mod support;
