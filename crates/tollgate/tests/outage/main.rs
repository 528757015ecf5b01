//! What requests get while the store gives no answer, and what the store is told afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod ad_hoc;
mod probing;
mod receipts;
mod reconciling;
mod rules;
mod support;
